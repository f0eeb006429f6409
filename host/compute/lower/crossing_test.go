package lower_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// crossingReplicas is a number of replicas that divides the rows of all matrices of the model.
const crossingReplicas = 4

// TestCrossings checks the table in docs/guide/gpu.md of the communication between replicas that
// programs of the shipped plugins need for sharded tensors.
func TestCrossings(t *testing.T) {
	if testing.Short() {
		t.Skip("starts all plugins")
	}
	matrix := []string{testrun.TwoLayers, "model.vocab=32"}
	table := "| quantizer | of Q(x) from rows of x | of its backward pass |\n|---|---|---|\n"
	for _, q := range []string{`{plugin="quest"}`, `{plugin="absmax", granularity="row"}`,
		`{plugin="absmax", granularity="tensor"}`, `{plugin="grid"}`, `{plugin="mxfp4"}`,
		`{plugin="nvfp4"}`, `{plugin="lsq"}`, `{weights={plugin="paretoq"}}`} {
		plan := testrun.Plan(t, testrun.Config(t, append(matrix, "quantizer="+q)...))
		at := 0
		for plan.Rules[at].Quantizer == nil {
			at++
		}
		parts, err := plan.Rules[at].Quantizer.Split()
		if err != nil {
			t.Fatal(err)
		}
		table += fmt.Sprintf("| `%s` | %s | %s |\n", q, crossed(t, parts.Forward),
			crossed(t, parts.Backward))
	}
	table += "\n| optimizer | of an update with CAGE and QuEST, from rows |\n|---|---|\n"
	for _, o := range []string{`{plugin="sgd"}`, `{plugin="adamw"}`,
		`{plugin="adamw", moments="int8"}`, `{plugin="muon"}`, `{plugin="shampoo"}`, `{plugin="soap"}`} {
		plan := testrun.Plan(t,
			testrun.Config(t, append(matrix, `quantizer={plugin="quest"}`, "optimizer="+o)...))
		at := 0
		for plan.Rules[at].Quantizer == nil {
			at++
		}
		rule := plan.Rules[at]
		rule.Mode = rule.Method.Modes()[0]
		p, err := rule.Program()
		if err != nil {
			t.Fatal(err)
		}
		table += fmt.Sprintf("| `%s` | %s |\n", o, crossed(t, p))
	}
	data, err := os.ReadFile("../../../docs/guide/gpu.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), table) {
		t.Errorf("docs/guide/gpu.md lacks this table:\n%s", table)
	}
}

// crossed describes the communication of a program if each replica has its rows of matrix inputs.
func crossed(t *testing.T, p *program.Program) string {
	t.Helper()
	c, err := lower.Crosses(p, crossingReplicas, func(in program.Input) bool {
		return in.Type.Rank() > 1 && in.Type.Shape[0]%crossingReplicas == 0 &&
			!strings.HasPrefix(in.Name, spec.TrainedPrefix)
	})
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, op := range c.Gathered {
		info, _ := op.Info()
		counts[info.Name]++
	}
	var list []string
	switch {
	case c.Reduced == 1:
		list = append(list, "one reduction")
	case c.Reduced > 1:
		list = append(list, fmt.Sprintf("%d reductions", c.Reduced))
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, fmt.Sprintf("%d × `%s` of a whole matrix", counts[name], name))
	}
	return cmp.Or(strings.Join(list, ", "), "nothing")
}
