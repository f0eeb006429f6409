//go:build !linux && !darwin

package memory

// Machine is what this process may still take; this system does not tell.
func Machine() (Available, bool) { return Available{}, false }
