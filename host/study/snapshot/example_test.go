package snapshot_test

import (
	"fmt"

	"github.com/cage-qat/cage/host/study/snapshot"
)

func ExampleRead() {
	f, err := snapshot.Read("testdata/toy.json")
	if err != nil {
		fmt.Println(err)
		return
	}
	c := f.Cells[0]
	fmt.Println(f.Study, f.Sources[c.Source].Date, c.ID, float64(c.Metrics["val_loss"]))
	// Output: toy 2026-11-21 CAGE-0-1c99394aaa5c 0.125
}
