package rundir_test

import (
	"fmt"
	"path/filepath"

	"github.com/cage-qat/cage/host/rundir"
)

func Example() {
	fmt.Println(filepath.ToSlash(rundir.Summary("runs/demo")))
	fmt.Println(filepath.ToSlash(rundir.Checkpoints("runs/demo")))
	// Output:
	// runs/demo/summary.json
	// runs/demo/checkpoints
}
