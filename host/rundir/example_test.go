package rundir_test

import (
	"fmt"
	"path/filepath"

	"github.com/cage-qat/cage/host/rundir"
)

func Example() {
	fmt.Println(filepath.ToSlash(rundir.At("runs/demo").Summary().Name))
	fmt.Println(filepath.ToSlash(rundir.At("runs/demo").Checkpoints().Name))
	// Output:
	// runs/demo/summary.json
	// runs/demo/checkpoints
}
