package ruler

import (
	"context"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/effort"
	"github.com/cage-qat/cage/internal/jsonlines"
	"github.com/cage-qat/cage/internal/vfs"
)

// TestOracle: who answers what is wanted, in other letters and among other words, has 100
// in every task, and who answers nothing has 0.
func TestOracle(t *testing.T) {
	effort.Long(t, "starts Python")
	_, inputs := readGolden(t)
	g := &Generator{Inputs: inputs, Count: countWords, Seed: DefaultSeed}
	for _, knows := range []bool{true, false} {
		d := At(vfs.At(t.TempDir()))
		p, err := g.Write(context.Background(), d, Plan{Tasks: Tasks(), Lengths: []int{1500, 2000}, Samples: 2})
		if err != nil {
			t.Fatal(err)
		}
		wanted := map[string]string{}
		for _, length := range p.Lengths {
			for _, task := range p.Tasks {
				for s, err := range jsonlines.Read[Sample](d.prompts(length, task)) {
					if err != nil {
						t.Fatal(err)
					}
					if knows {
						wanted[s.Value.Prompt()] = " Well: " + strings.ToUpper(strings.Join(s.Value.Outputs, ", ")) + "."
					}
				}
			}
		}
		err = d.Ask(context.Background(), p, func(_ context.Context, prompts []string, _ int) (said []string, _ error) {
			for _, p := range prompts {
				said = append(said, wanted[p])
			}
			return said, nil
		}, 2)
		if err != nil {
			t.Fatal(err)
		}
		checkOracle(t, d, knows)
	}
}

func checkOracle(t *testing.T, d Directory, knows bool) {
	t.Helper()
	r, err := d.Report(DefaultThreshold)
	if err != nil {
		t.Fatal(err)
	}
	want, effective := TaskReport{Answers: 2, Empty: 2}, 0
	if knows {
		want, effective = TaskReport{Score: 100, Answers: 2}, 2000
	}
	for _, l := range r.Lengths {
		for _, task := range Tasks() {
			if got := l.Scores[task.Name]; got != want {
				t.Errorf("%s at %d has %+v, want %+v", task.Name, l.Length, got, want)
			}
		}
	}
	if len(r.Lengths) != 2 || r.Average != want.Score || r.Effective != effective {
		t.Errorf("%d lengths with the average %v and the effective length %d", len(r.Lengths), r.Average, r.Effective)
	}
}
