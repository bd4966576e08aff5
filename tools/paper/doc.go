// Command paper makes the figures of the FBF
// paper again, beside the numbers the paper prints and beside this project's own
// filter on the same operations.
//
//	Subramanyam, Gupta, Leslie, Wang: "Idempotent Distributed Counters Using a
//	Forgetful Bloom Filter".
//
// A figure is computed first (fig08.go to fig15.go) into a result, which is plain
// numbers: panels to draw, tables, and findings beside the paper's. Only then is it
// drawn (render.go) and written (write.go). So the tests check numbers, and every
// point of a plot is also in a CSV file.
//
// Figures 8 to 13 are simulations on logged time (simulate.go): the paper's filter
// of package fbf/paper, or the product's of package fbf, driven by the same
// operations. They are the same for the same seed. Figures 14 and 15 are measured
// on a real server (server.go) over TCP, and differ from run to run.
package main
