//go:build !linux && !darwin

package memory

// Machine returns how much memory this process may take; this system does not tell.
func Machine() (Available, bool) { return Available{}, false }
