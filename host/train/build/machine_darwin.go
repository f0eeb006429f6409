package build

import "golang.org/x/sys/unix"

// machineMemory returns how much memory this process may take: all that the machine has,
// because macOS does not tell how much is free.
func machineMemory() (Available, bool) {
	size, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return Available{}, false
	}
	return Available{Bytes: int64(size), Limit: "memory of the machine"}, true
}
