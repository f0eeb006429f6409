package plugin

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// sharedMemory is an anonymous file that a plugin maps into memory. The kernel frees it when both
// processes have ended. A plugin cannot shrink it, and all pages are allocated at the start.
type sharedMemory struct{ file *os.File }

func newSharedMemory(bytes int64) (_ *sharedMemory, err error) {
	fd, err := unix.MemfdCreate("cage", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("creating shared memory: %w", err)
	}
	m := &sharedMemory{file: os.NewFile(uintptr(fd), "memory to share")}
	if err = unix.Fallocate(fd, 0, 0, bytes); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS,
			unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		m.close()
		return nil, fmt.Errorf("allocating %d bytes of shared memory: %w", bytes, err)
	}
	return m, nil
}

func (m *sharedMemory) path() string {
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), m.file.Fd())
}

func (m *sharedMemory) close() { _ = m.file.Close() }
