package metrics

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Reference documents the numbers of records and of summaries as Markdown.
func Reference() string {
	var b strings.Builder
	b.WriteString("# Numbers of a run\n\n" +
		"A run directory has `metrics.jsonl`, with a record every `train.log_every` steps and at each evaluation, and `summary.json`, what the run\n" +
		"ended with. A number that was not measured is left out; one that is not finite is the text `\"NaN\"`, `\"Inf\"` or `\"-Inf\"`. Tables and\n" +
		"figures of [studies](studies.md) call numbers by these names, and so do `cage runs list` and the filter of [`cage serve`](serve.md).\n" +
		"Losses are in nats per token. [Evaluations](evaluation.md) add numbers of their own, such as `hellaswag.acc_norm`.\n\n" +
		"| name | what it is | `metrics.jsonl` | of single tensors | `summary.json` |\n|---|---|---|---|---|\n")
	places := []reflect.Type{reflect.TypeFor[Record](), reflect.TypeFor[WeightMeasures](), reflect.TypeFor[Summary]()}
	in := map[string][]bool{}
	var names []string
	for i, place := range places {
		for _, name := range numbersOf(place) {
			if in[name] == nil {
				names = append(names, name)
				in[name] = make([]bool, len(places))
			}
			in[name][i] = true
		}
	}
	for _, name := range names {
		fmt.Fprintf(&b, "| `%s` | %s |", name, Label(name))
		for _, there := range in[name] {
			b.WriteString(map[bool]string{true: " × |", false: " |"}[there])
		}
		b.WriteString("\n")
	}
	b.WriteString("\nNumbers of single tensors stand in the table `weights` of a record, below the name of the tensor: [diagnostics](configuration.md#diagnostics)\n" +
		"say when. `cage runs export --csv` calls them `weights.TENSOR.NAME`.\n")
	return b.String()
}

// configuredNumbers are numbers of summaries that the configuration has.
var configuredNumbers = []string{"total_steps", "lambda", "silence"}

// numbersOf are the names of a struct's numbers in JSON.
func numbersOf(of reflect.Type) (names []string) {
	for i := range of.NumField() {
		field := of.Field(i)
		kind := field.Type
		if kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch kind.Kind() {
		case reflect.Int, reflect.Int64, reflect.Float64:
			if of != reflect.TypeFor[Summary]() || !slices.Contains(configuredNumbers, name) {
				names = append(names, name)
			}
		}
	}
	return names
}
