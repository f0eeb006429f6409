package report_test

import (
	"fmt"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/study/report"
)

// A report can be made at any time. It has no values for cells that are not done.
func Example() {
	s, err := study.Parse("toy.toml", []byte(`
		[base]
		model = {kind = "toy"}
		train = {steps = 50}
		schedule = {kind = "constant", rate = 0.1}
		quantizer = {plugin = "grid", rounding = "floor"}
		optimizer = {plugin = "sgd"}
		[study]
		[[study.axes]]
		name = "λ"
		key = "method.lambda"
		values = [0.5, 1.0]
	`))
	if err != nil {
		fmt.Println(err)
		return
	}
	results, err := s.Results()
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := report.New(s, results)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Progress())
	for _, row := range r.Tables[0].Grids()[0].Text() {
		fmt.Println(row)
	}
	// Output:
	// 0 of 2 cells are done, 2 missing.
	// [λ validation loss]
	// [0.5 –]
	// [1.0 –]
}
