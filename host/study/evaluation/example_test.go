package evaluation_test

import (
	"fmt"
	"log"
	"strings"

	"github.com/cage-qat/cage/host/deploy/tasks"
	"github.com/cage-qat/cage/host/study/evaluation"
)

func Example() {
	piqa, err := tasks.Open("piqa")
	if err != nil {
		log.Fatal(err)
	}
	e := &evaluation.Tasks{List: []*tasks.Task{piqa}, Names: []string{"piqa"}, Batch: 8, Source: tasks.Source{Data: "benchmarks", Shots: 5}}
	for _, m := range e.Metrics() {
		fmt.Println(m.Name, m.Higher)
	}
	fmt.Println("cage", strings.Join(e.Arguments("runs/a", "asked"), " "))
	// Output:
	// piqa.acc true
	// piqa.acc_norm true
	// cage eval runs/a --out asked --json --lifeline --tasks=piqa --data=benchmarks --fewshot=5
}
