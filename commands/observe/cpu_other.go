//go:build !unix

package observe

// infoCPU reports nothing where the system does not tell.
func infoCPU(*View, *Lines) {}
