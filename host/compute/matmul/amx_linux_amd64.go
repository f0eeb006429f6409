//go:build amd64 && goexperiment.simd

package matmul

import (
	"sync"

	"golang.org/x/sys/unix"
)

// mayUseTiles asks the kernel for permission to use AMX tiles, which it grants to a process on
// request (Documentation/arch/x86/xstate.rst), as they enlarge the saved state of each thread. It
// asks once; the answer holds for all threads.
var mayUseTiles = sync.OnceValue(func() bool {
	const (
		requestPermission = 0x1023 // ARCH_REQ_XCOMP_PERM
		tileData          = 18     // XFEATURE_XTILE_DATA
	)
	_, _, err := unix.RawSyscall(unix.SYS_ARCH_PRCTL, requestPermission, tileData, 0)
	return err == 0
})
