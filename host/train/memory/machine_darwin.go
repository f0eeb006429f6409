package memory

import "golang.org/x/sys/unix"

// Machine returns how much memory this process may take: all that the machine has,
// because macOS does not tell how much is free.
func Machine() (Available, bool) {
	size, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return Available{}, false
	}
	return Available{Bytes: int64(size), Limit: "memory of the machine"}, true
}
