package build_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/sdk/program"
)

// TestGroups checks that the rate and the weight decay of an optimizer group apply to the tensors
// of the group only.
func TestGroups(t *testing.T) {
	plan := testrun.Plan(t, testrun.Config(t, "model.vocab=40", "train.weight_decay=0.1",
		`optimizer.groups=[{match="*mlp.w1*", rate=0.25, weight_decay=0.3}, {match="*attn.*", rate=3.0}, {roles="embedding", rate=0.0, weight_decay=0.0}]`))
	seen := map[[2]float64]int{}
	for _, r := range plan.Rules {
		want := [2]float64{1, 0}
		switch {
		case strings.Contains(r.Name, "mlp.w1"):
			want = [2]float64{0.25, 0.3}
		case strings.Contains(r.Name, "attn."):
			want = [2]float64{3, 0.1}
		case strings.Contains(r.Name, "mlp"):
			want = [2]float64{1, 0.1}
		case strings.Contains(r.Name, "embed"):
			want = [2]float64{0, 0}
		}
		if strings.Contains(r.Name, "norm") {
			want[1] = 0
		}
		if got := [2]float64{r.RateFactor, r.Decay}; got != want {
			t.Errorf("%s: rate factor and decay are %v, want %v", r.Name, got, want)
		}
		seen[want]++
	}
	if len(seen) < 4 {
		t.Errorf("only these occur: %v", seen)
	}
}

// TestParts checks that optimizers get the sizes of the matrices in a fused weight, and in the
// factors of its adapter: Muon splits it if they have different sizes.
func TestParts(t *testing.T) {
	adapters, _ := testrun.FromHub(t, "adapters.rank=2", `optimizer={plugin="muon"}`)
	adapters.Model.Vocab = 328
	for suffix, cfg := range map[string]*config.Config{
		"attn.qkv": testrun.Config(t, "model.vocab=40", "model.kv_heads=1",
			`optimizer={plugin="muon"}`),
		"attn.qkv.lora_B": adapters} {
		found := false
		for _, r := range testrun.Plan(t, cfg).Rules {
			apart := r.Optimizer.Update != nil && slices.ContainsFunc(r.Optimizer.Update.Nodes,
				func(n program.Node) bool { return n.Op == program.OpConcatenate })
			want := strings.HasSuffix(r.Name, suffix)
			if found = found || want; apart != want {
				t.Errorf("%s: in parts of different sizes: %t, want %t", r.Name, apart, want)
			}
		}
		if !found {
			t.Errorf("there is no %s", suffix)
		}
	}
}

// TestDecayOrder checks that train.decay applies to every rule.
func TestDecayOrder(t *testing.T) {
	for text, want := range map[string]bool{"first": false, "last": true} {
		for _, r := range testrun.Plan(t,
			testrun.Config(t, "model.vocab=40", `train.decay="`+text+`"`)).Rules {
			if r.DecayLast != want {
				t.Errorf("train.decay = %q: %s decays last: %t", text, r.Name, r.DecayLast)
			}
		}
	}
}
