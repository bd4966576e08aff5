//go:build !unix

package commands

// infoCPU reports nothing where the system does not tell.
func infoCPU(*infoView, *infoLines) {}
