// Package manifests has no code: its test reads the files in packaging that Kubernetes and Docker
// Compose read, as these do.
package manifests

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

const packaging = "../../packaging/"

// objects decodes the documents of a manifest: every field must be one of its kind's, and of its type.
func objects(t *testing.T, file string, edit func([]byte) []byte) (all []any) {
	t.Helper()
	text, err := os.ReadFile(packaging + file)
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range regexp.MustCompile(`(?m)^---$`).Split(string(edit(text)), -1) {
		var kind struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		into := map[string]any{
			"apps/v1 StatefulSet": &appsv1.StatefulSet{}, "batch/v1 CronJob": &batchv1.CronJob{}, "batch/v1 Job": &batchv1.Job{},
			"networking.k8s.io/v1 NetworkPolicy": &networkingv1.NetworkPolicy{}, "v1 Service": &corev1.Service{}, "policy/v1 PodDisruptionBudget": &policyv1.PodDisruptionBudget{},
		}[kind.APIVersion+" "+kind.Kind]
		if into == nil {
			t.Fatalf("%s: %v is not known here", file, kind)
		}
		if err := yaml.UnmarshalStrict([]byte(document), into); err != nil {
			t.Fatalf("%s: %s: %v", file, kind.Kind, err)
		}
		all = append(all, into)
	}
	return all
}

func asIs(b []byte) []byte { return b }

// TestKubernetes: the manifests are what Kubernetes takes, and what they say of one another holds.
func TestKubernetes(t *testing.T) {
	job := objects(t, "backup/cronjob.yaml", asIs)[0].(*batchv1.CronJob).Spec.JobTemplate.Spec.Template
	checkPod(t, &job.Spec)
	cluster := objects(t, "kubernetes/cluster.yaml", asIs)
	clients, nodes, create := cluster[0].(*corev1.Service), cluster[1].(*corev1.Service), cluster[2].(*batchv1.Job)
	checkPod(t, &create.Spec.Template.Spec)
	if nodes.Spec.ClusterIP != corev1.ClusterIPNone || !nodes.Spec.PublishNotReadyAddresses {
		t.Error("a node's name is not known before it is ready")
	}
	var names []string
	for _, shard := range []string{"a", "b", "c"} {
		found := objects(t, "kubernetes/shard.yaml", func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("SHARD"), []byte(shard)) })
		set, budget := found[0].(*appsv1.StatefulSet), found[1].(*policyv1.PodDisruptionBudget)
		template := set.Spec.Template
		checkPod(t, &template.Spec)
		selectors := []map[string]string{set.Spec.Selector.MatchLabels, budget.Spec.Selector.MatchLabels, clients.Spec.Selector, nodes.Spec.Selector}
		for _, spread := range template.Spec.TopologySpreadConstraints {
			selectors = append(selectors, spread.LabelSelector.MatchLabels)
		}
		for i, selector := range selectors {
			for label, value := range selector {
				if template.Labels[label] != value {
					t.Errorf("selector %d of shard %s selects other pods: %s %s", i, shard, label, value)
				}
			}
			if own := i != 2 && i != 3; own != (selector["shard"] == shard) {
				t.Errorf("selector %d of shard %s: %v", i, shard, selector)
			}
		}
		if set.Spec.ServiceName != nodes.Name || set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement || budget.Spec.MaxUnavailable.IntValue() != 1 {
			t.Errorf("shard %s: names, order or budget", shard)
		}
		server := template.Spec.Containers[0]
		ports := map[string]int32{}
		for _, p := range server.Ports {
			ports[p.Name] = p.ContainerPort
		}
		if probe := server.ReadinessProbe.HTTPGet; ports[probe.Port.String()] != 9379 {
			t.Errorf("%s is asked at %s", probe.Path, probe.Port.String())
		}
		// From within the pod: no flood of the port from outside ends a server that is well.
		if alive := server.LivenessProbe.Exec.Command; !slices.Equal(alive, []string{"/fbfkv", "healthcheck", "--url", "http://127.0.0.1:9379/healthz"}) {
			t.Errorf("whether it is alive is asked by %v", alive)
		}
		for _, p := range nodes.Spec.Ports {
			if ports[p.Name] != p.Port {
				t.Errorf("port %s is %d, and of the pods %d", p.Name, p.Port, ports[p.Name])
			}
		}
		for _, mount := range server.VolumeMounts {
			volume := slices.ContainsFunc(template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
			if claim := slices.ContainsFunc(set.Spec.VolumeClaimTemplates, func(v corev1.PersistentVolumeClaim) bool { return v.Name == mount.Name }); volume == claim {
				t.Errorf("the volume %s is missing or there twice", mount.Name)
			}
		}
		for i := range *set.Spec.Replicas {
			names = append(names, set.Name+"-"+string(rune('0'+i))+"."+nodes.Name+":6379")
		}
	}
	checkPolicy(t, "clients", &job, &create.Spec.Template)
	command := create.Spec.Template.Spec.Containers[0].Command
	asked := slices.Sorted(slices.Values(command[len(command)-len(names):]))
	if slices.Sort(names); !slices.Equal(asked, names) {
		t.Errorf("the cluster is made of %v, and the pods are %v", asked, names)
	}
}

// checkPod expects a pod without rights, whose environment does not depend on which services there are:
// for a service fbfkv, Kubernetes would set FBFKV_PORT.
func checkPod(t *testing.T, pod *corev1.PodSpec) {
	t.Helper()
	c := pod.Containers[0].SecurityContext
	if pod.EnableServiceLinks == nil || *pod.EnableServiceLinks || *c.AllowPrivilegeEscalation || !*c.ReadOnlyRootFilesystem || len(c.Capabilities.Drop) == 0 {
		t.Errorf("%s has more than it needs: %+v", pod.Containers[0].Name, c)
	}
}

// checkPolicy expects that the shipped policy lets pods through to a port of the servers.
func checkPolicy(t *testing.T, port string, pods ...*corev1.PodTemplateSpec) {
	t.Helper()
	policy := objects(t, "kubernetes/networkpolicy.yaml", asIs)[0].(*networkingv1.NetworkPolicy)
	selects := func(selector *metav1.LabelSelector, pod *corev1.PodTemplateSpec) bool {
		s, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			t.Fatal(err)
		}
		return s.Matches(labels.Set(pod.Labels))
	}
	for _, pod := range pods {
		if !slices.ContainsFunc(policy.Spec.Ingress, func(rule networkingv1.NetworkPolicyIngressRule) bool {
			return slices.ContainsFunc(rule.Ports, func(p networkingv1.NetworkPolicyPort) bool { return *p.Port == intstr.FromString(port) }) &&
				slices.ContainsFunc(rule.From, func(peer networkingv1.NetworkPolicyPeer) bool {
					return peer.NamespaceSelector == nil && peer.PodSelector != nil && selects(peer.PodSelector, pod)
				})
		}) {
			t.Errorf("the policy keeps the pod of the container %s, labels %v, from the port %s", pod.Spec.Containers[0].Name, pod.Labels, port)
		}
	}
}

// TestCompose loads the compose files as Docker Compose does, with each profile.
func TestCompose(t *testing.T) {
	for _, tt := range []struct {
		file, profile string
		servers       int
	}{{"compose.yaml", "", 1}, {"cluster.yaml", "three", 3}, {"cluster.yaml", "nine", 9}} {
		path, err := filepath.Abs(packaging + "docker/" + tt.file)
		if err != nil {
			t.Fatal(err)
		}
		project, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{WorkingDir: filepath.Dir(path), ConfigFiles: []types.ConfigFile{{Filename: path}}},
			func(o *loader.Options) { o.Profiles = []string{tt.profile}; o.SetProjectName("fbfkv", false) })
		if err != nil {
			t.Errorf("%s %s: %v", tt.file, tt.profile, err)
			continue
		}
		servers, volumes := 0, map[string]bool{}
		for name, s := range project.Services {
			if !strings.HasPrefix(name, "fbfkv") {
				continue
			}
			servers++
			for _, v := range s.Volumes {
				if v.Type == types.VolumeTypeVolume {
					volumes[v.Source] = true
				} else if _, err := os.Stat(v.Source); err != nil {
					t.Errorf("%s: %s mounts %v", tt.file, name, err)
				}
			}
			if !s.ReadOnly || len(s.CapDrop) == 0 || s.StopGracePeriod == nil || time.Duration(*s.StopGracePeriod) < 2*time.Minute {
				t.Errorf("%s: %s has more than it needs, or too little time to stop", tt.file, name)
			}
		}
		if servers != tt.servers || len(volumes) != tt.servers {
			t.Errorf("%s %s: %d servers with %d volumes, want %d", tt.file, tt.profile, servers, len(volumes), tt.servers)
		}
		create, made := project.Services["create-"+tt.profile]
		if made != (tt.servers > 1) {
			t.Errorf("%s %s: nobody makes the cluster", tt.file, tt.profile)
		}
		for _, argument := range create.Entrypoint {
			if name, port, ok := strings.Cut(argument, ":"); ok {
				s, known := project.Services[name]
				if !known || port != "6379" || s.HealthCheck == nil || !slices.Equal(s.Command, []string{"--cluster-announce-ip", name}) {
					t.Errorf("%s %s: %s is no node, or not known by this name", tt.file, tt.profile, argument)
				}
			}
		}
		if tt.servers > 1 && len(create.DependsOn) != tt.servers {
			t.Errorf("%s %s: create waits for %d servers", tt.file, tt.profile, len(create.DependsOn))
		}
	}
}
