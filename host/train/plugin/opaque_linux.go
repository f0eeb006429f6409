package plugin

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// sharedMemory is memory that a plugin maps, too. It is a file without a name: nothing of it stays when both
// processes have ended, however they end. A plugin cannot make it shorter, which would end the host at its next
// look; all pages are there from the start, for the same reason.
type sharedMemory struct {
	file *os.File
	data []byte
}

// newSharedMemory makes memory of zeros.
func newSharedMemory(bytes int64) (_ *sharedMemory, err error) {
	fd, err := unix.MemfdCreate("cage", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memory to share: %w", err)
	}
	m := &sharedMemory{file: os.NewFile(uintptr(fd), "memory to share")}
	if err = unix.Fallocate(fd, 0, 0, bytes); err == nil {
		if _, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err == nil {
			m.data, err = unix.Mmap(fd, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		}
	}
	if err != nil {
		m.close()
		return nil, fmt.Errorf("%d bytes of memory to share: %w", bytes, err)
	}
	return m, nil
}

// path is where a plugin finds the file.
func (m *sharedMemory) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), m.file.Fd()) }

// close frees the memory; nothing of it may be used any more.
func (m *sharedMemory) close() {
	if m.data != nil {
		_ = unix.Munmap(m.data)
	}
	_ = m.file.Close()
}
