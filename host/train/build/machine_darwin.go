package build

import "golang.org/x/sys/unix"

// machineMemory returns the memory that this process may use: all of the machine's, because macOS
// does not report how much is free.
func machineMemory() (Available, bool) {
	size, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return Available{}, false
	}
	return Available{Bytes: int64(size), Limit: "memory of the machine"}, true
}
