package cluster

// The verbs of CLUSTER FBFKV, by which `fbfkv cluster` looks after nodes: an
// administrator's commands to one node, over its port for clients. Each takes a JSON value
// and answers with one. Each can be sent again: what is so already stays so.
const (
	// VerbInfo takes {} and answers with an Info.
	VerbInfo = "info"
	// VerbInit takes an InitRequest: the node becomes the first of a new cluster. It opens
	// its directory again afterwards, and closes its connections for that.
	VerbInit = "init"
	// VerbAdmit takes a Member, which any member has written into the configuration: from then on
	// the others accept its connections. It has no vote, unless it is the first one of its shard.
	VerbAdmit = "admit"
	// VerbJoin takes a JoinRequest: a node that was admitted fetches the configuration from
	// a member and opens its directory again as the cluster's.
	VerbJoin = "join"
	// VerbPromote takes a PromoteRequest and answers with a Progress. The leader sends the
	// node the log, and gives it a vote once it is near the end.
	VerbPromote = "promote"
	// VerbHandOver takes a NodeRequest: the leader makes the node leader, or any other
	// if the request names none.
	VerbHandOver = "hand-over"
	// VerbRemove takes a NodeRequest: the leader of its shard removes the node from the cluster.
	VerbRemove = "remove"
	// VerbDissolve takes a NodeRequest: the last node of a shard that has no partitions, and the shard with
	// it, are removed. Any member does that.
	VerbDissolve = "dissolve"
	// VerbMove takes a MoveRequest: the partitions that the shard has not are to move there. Any member notes
	// that; the leaders of the shards see to it.
	VerbMove = "move"
	// VerbStay takes a MoveRequest without To: the partitions that are on their way stay where they
	// are. Any member notes that.
	VerbStay = "stay"
	// VerbForget takes a ForgetRequest: a node that was removed stops, and never starts with
	// its directory again.
	VerbForget = "forget"
	// VerbBackups takes a RestoreRequest and answers with the Backups that the node finds there.
	VerbBackups = "backups"
	// VerbRestore takes a RestoreRequest: a node without a cluster and without data takes the data
	// of a backup.
	VerbRestore = "restore"
)

// TryAgain begins the error of a verb that may go well if it is sent again, to whoever leads
// the shard then: the node does not lead, or what it began was interrupted.
const TryAgain = "TRYAGAIN"

// Info is what a node says of itself.
type Info struct {
	// Version is the program's.
	Version string `json:"version"`
	// Self has the node's id, the level that its program reads, and what its settings say of
	// its address: Host is "" unless they announce one.
	Self Member `json:"self"`
	// Pristine: the directory holds nothing that could be lost.
	Pristine   bool `json:"pristine"`
	Partitions int  `json:"partitions"`
	// Cluster is the id of the cluster whose member the node is; "" if it is no member.
	Cluster string `json:"cluster"`
	// Restored is the backup that the directory was made from by VerbRestore; "" if it was
	// not, or if the node has joined a cluster since. Tables are what a backup of one of several shards has.
	Restored string  `json:"restored"`
	Tables   *Tables `json:"tables,omitempty"`
	// Settings and Users are hashes of what should be equal on all nodes and belongs to
	// each alone.
	Settings string `json:"settings"`
	Users    string `json:"users"`

	// Configuration, without the seed, and State are set by a member only.
	Configuration *Configuration `json:"configuration,omitempty"`
	State         *State         `json:"state,omitempty"`
	// Meta is what a member knows of the meta group.
	Meta MetaStatus `json:"meta"`
}

// State is what a member knows of its shard.
type State struct {
	Role string `json:"role"` // leader, follower or candidate
	// Ready: the node leads and decides.
	Ready  bool   `json:"ready"`
	Leader string `json:"leader"` // its id; "" if it is not known
	Term   uint64 `json:"term"`
	// Indexes of the log: its end, what is known to be committed, and what is applied.
	Last    uint64 `json:"last"`
	Commit  uint64 `json:"commit"`
	Applied uint64 `json:"applied"`
	// Behind is for how long a replica has not had all that was committed, ms; DiskFull: there is
	// no space for it.
	Behind   int64 `json:"behind,omitempty"`
	DiskFull bool  `json:"diskFull,omitempty"`
	// Aside is why the node takes part in nothing; "": it does.
	Aside string `json:"aside,omitempty"`
}

// InitRequest makes a node the first of a new cluster.
type InitRequest struct {
	// Cluster is the new id. A node that is a member of it already is left as it is.
	Cluster string `json:"cluster"`
	// Partitions is how many a directory without data gets; one with data keeps its own.
	Partitions int `json:"partitions"`
	// Shards is how many there will be; 0 is one. Data that the node brings is in the first one.
	Shards int `json:"shards"`
	// Host is where the others reach the node, unless its settings announce another.
	Host string `json:"host"`
	// Restores is the first configuration of a cluster of several shards that are made of backups,
	// without the hash seed. Its members begin them with those, this node the first one. nil: it is
	// another cluster.
	Restores *Configuration `json:"restores,omitempty"`
}

// JoinRequest makes a node a member.
type JoinRequest struct {
	Cluster string `json:"cluster"`
	// Via are cluster ports of members, HOST:PORT, of which one must answer.
	Via []string `json:"via"`
}

// NodeRequest names a member by its id.
type NodeRequest struct {
	ID string `json:"id"`
}

// PromoteRequest names a member that is to catch up.
type PromoteRequest struct {
	ID string `json:"id"`
	// Vote: it is to vote once it has caught up.
	Vote bool `json:"vote"`
}

// MoveRequest names partitions that are to move to a shard.
type MoveRequest struct {
	Partitions []int  `json:"partitions"`
	To         string `json:"to,omitempty"`
}

// ForgetRequest names the cluster that a node no longer belongs to.
type ForgetRequest struct {
	Cluster string `json:"cluster"`
}

// RestoreRequest names a backup on the node's machine.
type RestoreRequest struct {
	Dir string `json:"dir"`
}

// Progress says how far a node that is catching up is.
type Progress struct {
	Voter bool `json:"voter"` // it has caught up and votes
	Near  bool `json:"near"`  // it is near enough to the end of the log to vote
	// Behind is how many entries of the log the node lacks.
	Behind uint64 `json:"behind"`
}
