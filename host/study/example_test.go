package study_test

import (
	"fmt"
	"log"

	"github.com/cage-qat/cage/host/study"
)

// This example parses a study of four cells whose base configuration is in the study file.
func Example() {
	s, err := study.Parse("toy.toml", []byte(`
[base]
model = {kind = "toy"}
train = {steps = 200}
schedule = {kind = "constant", rate = 0.1}
quantizer = {plugin = "grid", rounding = "floor"}
optimizer = {plugin = "sgd"}

[[study.axes]]
name = "method"
values = [
  {label = "STE",  set = {method.form = "off"}},
  {label = "CAGE", set = {method.lambda = 2.0}},
]
[[study.axes]]
name = "start"
key = "model.start"
values = [[0.2], [0.9]]
`))
	if err != nil {
		log.Fatal(err)
	}
	results, err := s.Results()
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range results {
		fmt.Println(s.Label(r.Cell), r.State)
	}
	// Output:
	// STE · [0.2] missing
	// STE · [0.9] missing
	// CAGE · [0.2] missing
	// CAGE · [0.9] missing
}
