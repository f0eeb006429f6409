package memory

import "golang.org/x/sys/unix"

// Machine is what this process may still take: all that the machine has, because macOS
// does not tell what is free.
func Machine() (Available, bool) {
	size, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return Available{}, false
	}
	return Available{int64(size), "memory of the machine"}, true
}
