//go:build amd64 && goexperiment.simd

package matmul

import (
	"sync"

	"golang.org/x/sys/unix"
)

// mayUseTiles asks the Linux kernel for permission to use AMX tiles. Processes need it because
// tiles enlarge the saved state of each thread (Documentation/arch/x86/xstate.rst). It asks once;
// the answer holds for all threads.
var mayUseTiles = sync.OnceValue(func() bool {
	const (
		requestPermission = 0x1023 // ARCH_REQ_XCOMP_PERM
		tileData          = 18     // XFEATURE_XTILE_DATA
	)
	_, _, err := unix.RawSyscall(unix.SYS_ARCH_PRCTL, requestPermission, tileData, 0)
	return err == 0
})
