//go:build !linux

package sketch

func adviseHuge([]byte) {}
