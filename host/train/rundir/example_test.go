package rundir_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/cage-qat/cage/host/train/rundir"
)

func Example() {
	fmt.Println(filepath.ToSlash(rundir.At("runs/demo").Summary().Name))
	fmt.Println(filepath.ToSlash(rundir.At("runs/demo").Checkpoints().Name))
	// Output:
	// runs/demo/summary.json
	// runs/demo/checkpoints
}

// This example lists the runs with 4 bits, the best first.
func ExampleLister_List() {
	dir, err := os.MkdirTemp("", "runs")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for name, text := range map[string][2]string{
		"quest": {"[quantizer]\nplugin = \"quest\"\nbits = 4\n", `{"completed": true, "val_loss": 2.5}`},
		"lsq":   {"[quantizer]\nplugin = \"lsq\"\nbits = 4\n", `{"completed": true, "val_loss": 2.25}`},
		"two":   {"[quantizer]\nplugin = \"quest\"\nbits = 2\n", `{"completed": true, "val_loss": 3}`},
	} {
		run := filepath.Join(dir, name)
		for file, content := range map[string]string{"run.toml": text[0], "summary.json": text[1]} {
			if err := os.MkdirAll(run, 0o755); err != nil {
				log.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(run, file), []byte(content), 0o644); err != nil {
				log.Fatal(err)
			}
		}
	}
	list, err := new(rundir.Lister).List(context.Background(), dir)
	if err != nil {
		log.Fatal(err)
	}
	four, err := rundir.ParseCondition("quantizer.bits=4")
	if err != nil {
		log.Fatal(err)
	}
	list = rundir.Filter(list, []rundir.Condition{four})
	rundir.Sort(list, "val_loss")
	for _, r := range list {
		loss, _ := r.Result("val_loss")
		fmt.Println(filepath.Base(r.Dir), loss)
	}
	// Output:
	// lsq 2.25
	// quest 2.5
}
