package assembly_test

import (
	"testing"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train/assembly"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/plugin"
)

// conversations is a training whose steps follow from so many documents, one in each row.
func conversations(t *testing.T, documents int) *config.Config {
	t.Helper()
	path := testrun.ChatFile(t, tokenizer.Bytes{}.Info(), func(yield func([]int32, []bool) bool) {
		for n := 0; n < documents && yield([]int32("aaaabbbbb"), []bool{8: true}); n++ {
		}
	})
	base := `
model = {layers = 1, width = 32, heads = 2, hidden = 48, context = 16}
data = {kind = "chat", packing = "none", train = "` + path + `", validation = "` + path + `"}
train = {batch = 2, out = "` + t.TempDir() + `"}
schedule = {rate = 3e-3}
quantizer = {plugin = "quest"}
optimizer = {plugin = "adamw"}
`
	return testrun.Parse(t, base)
}

// TestSurveyOfConversations: what does not fit the steps that conversations give is found in each configuration, in any order.
func TestSurveyOfConversations(t *testing.T) {
	cases := []struct{ override, problem string }{
		{"schedule.warmup=0.1", ""}, {"schedule.warmup=5000.0", "schedule.warmup"}, {"seed=1", ""},
		{"train.steps=5", ""}, {"train.steps=17", ""}, {"train.steps=18", "train.steps"}, {"train.accumulate=2", ""},
	}
	base := conversations(t, 34)
	check := func(order []int) {
		var list []*config.Config
		for _, i := range order {
			list = append(list, testrun.Elsewhere(t, base, cases[i].override))
		}
		for n, f := range assembly.Survey(t.Context(), list, testrun.Finder(t), plugin.Options{}) {
			got := ""
			if e := problemsIn(f.Err); len(e) == 1 {
				got = e[0].Key
			}
			if want := cases[order[n]]; got != want.problem || (f.Err == nil) != (got == "") {
				t.Errorf("in the order %v, %s: a problem of %q, want %q: %v", order, want.override, got, want.problem, f.Err)
			}
		}
	}
	check([]int{0, 1, 2, 3, 4, 5, 6})
	check([]int{6, 5, 4, 3, 2, 1, 0})
}
