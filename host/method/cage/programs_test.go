package cage

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"testing"

	"github.com/cage-qat/cage/internal/effort"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// TestProgramsStay compares the programs of a rule's settings with the digests below, one
// for each form, variant and quantizer. So a change of this package that should change no
// program can show that it does not. Who changes the method on purpose replaces the digests.
func TestProgramsStay(t *testing.T) {
	sampleOrAll := effort.Choose(0, 1)
	for _, form := range []Form{Off, Coupled, Decoupled} {
		for _, variant := range []Variant{Paper, Official} {
			for name, q := range map[string]sdk.Quantizer{"none": nil, "grid": gridQuantizer{0.25}, "homogeneous": quest4{}, "trained": learnedStep{}} {
				rule := Rule{Name: "x", Shape: []int{4, 8}, RateFactor: 1, Form: form, Variant: variant}
				if q != nil {
					p, err := sdk.BuildQuantizer(q, sdk.Site{Role: sdk.RoleWeight, Name: "x", Shape: rule.Shape})
					if err != nil {
						t.Fatal(err)
					}
					rule.Quantizer = &p
				}
				key := fmt.Sprint(form, " ", variant, " ", name)
				if got, want := digest(t, rule), programDigests[key][sampleOrAll]; got != want {
					t.Errorf("%s: other programs than before, with the digest %s, want %s", key, got, want)
				}
			}
		}
	}
}

// digest hashes the programs of a rule under combinations of its other seven settings: all
// 128, or 16 among which any three settings have all their combinations.
func digest(t *testing.T, rule Rule) string {
	t.Helper()
	h := sha256.New()
	for _, opt := range []sdk.Optimizer{sgd{}, adam{}, watcher{}} {
		o, err := sdk.BuildOptimizer(opt, sdk.Tensor{Name: "x", Shape: rule.Shape})
		if err != nil {
			t.Fatal(err)
		}
		rule.Optimizer = o
		for i := range 1 << 7 {
			bit := func(n int) bool { return i>>n&1 == 1 }
			inSample := bit(4) == (bit(0) != bit(1) != bit(2)) && bit(5) == (bit(1) != bit(2) != bit(3)) && bit(6) == (bit(0) != bit(1) != bit(3))
			if !effort.Choose(inSample, true) {
				continue
			}
			r := rule
			r.Clip, r.Statistics, r.Observed, r.DecayLast = bit(0), bit(1) && r.Quantizer != nil, bit(2), bit(3)
			if bit(4) {
				r.Decay, r.RateFactor = 0.1, 0.5
			}
			if bit(5) {
				r.Lotion = &Lotion{Coeff: 3, FisherDecay: 0.9, Denominator: 8}
			}
			if bit(6) {
				r.Rotation = 4
			}
			writeHashes(t, h, r)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// writeHashes writes the hashes of a rule's programs, and what describes them.
func writeHashes(t *testing.T, w io.Writer, r Rule) {
	t.Helper()
	for _, write := range []func() (*program.Program, error){r.Program, r.ObserveProgram} {
		p, err := write()
		if err != nil {
			t.Fatal(err)
		}
		if p != nil {
			fmt.Fprintln(w, p.Hash())
		}
	}
	pareto, err := ParetoNorm2(r)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(w, pareto.Hash(), r.Inputs(), measuresOf(r), r.State(), r.NeedsQuantized())
}

// learnedStep is a quantizer with a trained parameter.
type learnedStep struct{}

func (learnedStep) Describe() sdk.Description { return sdk.Description{Name: "learned"} }

func (learnedStep) InitTrained(_ *program.Builder, x program.Value, _ sdk.Site) (sdk.State, error) {
	return sdk.State{"step": x.Abs().MaxRow().Scale(0.25)}, nil
}

func (learnedStep) Quantize(_ *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	step := site.Trained["step"]
	return sdk.Quantized{Value: x.Div(step).Round().Mul(step), Surrogate: x.Mul(step)}, nil
}

// watcher is an optimizer that observes.
type watcher struct{}

func (watcher) Describe() sdk.Description { return sdk.Description{Name: "watcher"} }

func (watcher) Init(b *program.Builder, _ program.Value, t sdk.Tensor) (sdk.State, error) {
	return sdk.State{"seen": b.Zeros(t.Shape...), "scale": b.Const(1)}, nil
}

func (watcher) Observe(_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor) (sdk.State, error) {
	return sdk.State{"seen": in.State["seen"].Add(in.Gradient.Square())}, nil
}

func (watcher) Refresh(_ *program.Builder, in sdk.RefreshInput, _ bool, _ sdk.Tensor) (sdk.State, error) {
	return sdk.State{"scale": in.State["seen"].SumAll()}, nil
}

func (watcher) RefreshAt(sdk.Tensor) sdk.Due { return sdk.Due{First: 1, Next: 3, Every: 2} }

func (watcher) Update(_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor) (program.Value, sdk.State, error) {
	return in.Gradient.Mul(in.State["scale"]), in.State, nil
}

// programDigests are those of the sample, and those of all combinations.
var programDigests = map[string][2]string{
	"coupled official grid":          {"33c68d340dca9778", "568374400b770dcb"},
	"coupled official homogeneous":   {"33c68d340dca9778", "568374400b770dcb"},
	"coupled official none":          {"a9298c8b22c387d4", "d6e21286148e7c3c"},
	"coupled official trained":       {"33c68d340dca9778", "568374400b770dcb"},
	"coupled paper grid":             {"33c68d340dca9778", "568374400b770dcb"},
	"coupled paper homogeneous":      {"33c68d340dca9778", "568374400b770dcb"},
	"coupled paper none":             {"a9298c8b22c387d4", "d6e21286148e7c3c"},
	"coupled paper trained":          {"33c68d340dca9778", "568374400b770dcb"},
	"decoupled official grid":        {"6509db46067ca11a", "e6a137baf4f9657d"},
	"decoupled official homogeneous": {"53dff72b93e33556", "00a5f70e2276a0a9"},
	"decoupled official none":        {"a9298c8b22c387d4", "d6e21286148e7c3c"},
	"decoupled official trained":     {"6038f33026830014", "9208151ef5ef4d67"},
	"decoupled paper grid":           {"db5af9a29b8817da", "2459b4c9f25b850a"},
	"decoupled paper homogeneous":    {"56be2a232043d1f6", "65c605fdf6cdfbb1"},
	"decoupled paper none":           {"a9298c8b22c387d4", "d6e21286148e7c3c"},
	"decoupled paper trained":        {"02c7f600338ca240", "2764a4899553e68f"},
	"off official grid":              {"04f989a0578569e7", "8748add8f7844a30"},
	"off official homogeneous":       {"04f989a0578569e7", "8748add8f7844a30"},
	"off official none":              {"a9298c8b22c387d4", "d6e21286148e7c3c"},
	"off official trained":           {"04f989a0578569e7", "8748add8f7844a30"},
	"off paper grid":                 {"04f989a0578569e7", "8748add8f7844a30"},
	"off paper homogeneous":          {"04f989a0578569e7", "8748add8f7844a30"},
	"off paper none":                 {"a9298c8b22c387d4", "d6e21286148e7c3c"},
	"off paper trained":              {"04f989a0578569e7", "8748add8f7844a30"},
}

// measuresOf are the scalar outputs of a rule's program, in order.
func measuresOf(r Rule) []string {
	var list []string
	if r.Statistics {
		list = append(list, OutputErrorNorm2, OutputValueNorm2)
	}
	if r.corrects() {
		list = append(list, OutputUncorrected)
	}
	return list
}
