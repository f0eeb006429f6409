package plugin

import (
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

func init() {
	behaviours["trainable"] = func() { sdk.ServeQuantizer(testTrainable{}) }
	behaviours["refresher"] = func() { sdk.ServeOptimizer(testRefresher{}) }
}

// mischief returns the parameters that choose a method and how it misbehaves.
func mischief(methods ...string) []sdk.Parameter {
	return []sdk.Parameter{
		sdk.Choice("in", methods[0], methods, "which method misbehaves"),
		sdk.String("do", "", "how to misbehave"),
	}
}

// misbehave makes a method misbehave if the parameters ask for it.
func misbehave(v sdk.Values, method string) error {
	if v.Text("in") != method {
		return nil
	}
	switch v.Text("do") {
	case "refuse":
		return sdk.Refuse("the tensor has no basis")
	case "panic":
		panic("no basis")
	case "exit":
		os.Exit(7)
	}
	return nil
}

// testTrainable learns a step size and packs its codes.
type testTrainable struct{}

func (testTrainable) Describe() sdk.Description {
	return sdk.Description{Name: "trainable", Parameters: mischief("init", "unpack")}
}

func (testTrainable) InitTrained(
	_ *program.Builder, x program.Value, site sdk.Site,
) (sdk.State, error) {
	return sdk.State{"step": x.Abs().SumAll()}, misbehave(site.Values, "init")
}

func (testTrainable) Quantize(
	_ *program.Builder, x program.Value, site sdk.Site,
) (sdk.Quantized, error) {
	s := site.Trained["step"]
	codes := x.Div(s).Round()
	return sdk.Quantized{Value: codes.Mul(s), Surrogate: codes.StopGradient().Mul(s), Codes: codes,
		Scale: s}, nil
}

func (testTrainable) Unpack(
	_ *program.Builder, codes, scale program.Value, site sdk.Site,
) (program.Value, error) {
	return codes.Mul(scale), misbehave(site.Values, "unpack")
}

// testRefresher keeps preconditioners of each axis, and does not accept embeddings.
type testRefresher struct{}

func (testRefresher) Describe() sdk.Description {
	return sdk.Description{Name: "refresher",
		Parameters: append(mischief("accepts", "observe", "refresh"),
			sdk.Int("copies", 1, 1, 100, "preconditioners of each axis"))}
}

func (testRefresher) Accepts(t sdk.Tensor) bool {
	if err := misbehave(t.Values, "accepts"); err != nil {
		panic(err)
	}
	return t.Role != sdk.TensorEmbedding
}

func (testRefresher) Init(b *program.Builder, _ program.Value, t sdk.Tensor) (sdk.State, error) {
	state := sdk.State{}
	for axis, d := range t.Shape {
		for c := range t.Int("copies") {
			state[fmt.Sprintf("axis%d.%d", axis, c)] = b.Zeros(d, d)
		}
	}
	return state, nil
}

func (testRefresher) Observe(
	_ *program.Builder, in sdk.UpdateInput, t sdk.Tensor,
) (sdk.State, error) {
	seen := in.State["axis0.0"].Add(in.Step)
	return sdk.State{"axis0.0": seen}, misbehave(t.Values, "observe")
}

func (testRefresher) Refresh(
	_ *program.Builder, in sdk.RefreshInput, first bool, t sdk.Tensor,
) (sdk.State, error) {
	q := in.State["axis0.0"].QR()
	if first {
		q = in.State["axis0.0"].EighVectors()
	}
	return sdk.State{"axis0.0": q}, misbehave(t.Values, "refresh")
}

func (testRefresher) RefreshAt(sdk.Tensor) sdk.Due { return sdk.Due{First: 1, Next: 10, Every: 10} }

func (testRefresher) Update(
	_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (program.Value, sdk.State, error) {
	return in.Gradient, in.State, nil
}

func trainableSite(in, do string) sdk.Site {
	return sdk.Site{Role: sdk.RoleWeight, Name: "layers.0.wq", Shape: []int{2, 4},
		Values: sdk.NewValues(map[string]any{"in": in, "do": do})}
}

func refresherTensor(in, do string) sdk.Tensor {
	return sdk.Tensor{Role: sdk.TensorMatrix, Name: "layers.0.wq", Shape: []int{2, 4},
		Values: sdk.NewValues(map[string]any{"in": in, "do": do, "copies": 1})}
}

func TestTrainableAndPacker(t *testing.T) {
	c := start(t, "trainable", sdk.KindQuantizer, Options{})
	got, err := c.Quantize(t.Context(), trainableSite("init", ""))
	if err != nil {
		t.Fatal(err)
	}
	want, err := sdk.BuildQuantizer(testTrainable{}, trainableSite("init", ""))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" || got.Init == nil ||
		got.Unpack == nil {
		t.Errorf("the answer changed (-sent +received):\n%s", diff)
	}
}

func TestRefresherAndSelective(t *testing.T) {
	c := start(t, "refresher", sdk.KindOptimizer, Options{})
	got, err := c.Program(t.Context(), refresherTensor("accepts", ""))
	if err != nil {
		t.Fatal(err)
	}
	want, err := sdk.BuildOptimizer(testRefresher{}, refresherTensor("accepts", ""))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" || !got.Accepts ||
		got.FirstRefresh == nil {
		t.Errorf("the answer changed (-sent +received):\n%s", diff)
	}
	embedding := refresherTensor("accepts", "")
	embedding.Role = sdk.TensorEmbedding
	got, err = c.Program(t.Context(), embedding)
	if diff := cmp.Diff(spec.Optimizer{}, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Errorf("a tensor that is not accepted: %v\n%s", err, diff)
	}
}

// TestFailuresInACapability checks the errors if methods refuse, panic or end the plugin.
func TestFailuresInACapability(t *testing.T) {
	testlevel.Long(t, "starts several plugins")
	t.Parallel()
	for _, c := range []struct {
		behaviour string
		kind      sdk.Kind
		methods   []string
	}{
		{"trainable", sdk.KindQuantizer, []string{"init", "unpack"}},
		{"refresher", sdk.KindOptimizer, []string{"accepts", "observe", "refresh"}},
	} {
		plugin := start(t, c.behaviour, c.kind, Options{})
		ask := func(method, do string) (err error) {
			if c.kind == sdk.KindQuantizer {
				_, err = plugin.Quantize(t.Context(), trainableSite(method, do))
			} else {
				_, err = plugin.Program(t.Context(), refresherTensor(method, do))
			}
			return err
		}
		for _, method := range c.methods {
			refusal := ErrRefused
			if method == "accepts" { // it returns no error, and can only panic
				refusal = ErrFailed
			}
			check(t, ask(method, "refuse"), refusal, "layers.0.wq: ", "the tensor has no basis",
				"plugin "+c.behaviour)
			check(t, ask(method, "panic"), ErrFailed, "panic: no basis (capabilities_test.go:",
				"plugin "+c.behaviour)
		}
		check(t, ask(c.methods[len(c.methods)-1], "exit"), ErrShutdown, "exited with status 7",
			"plugin "+c.behaviour)
	}
}

// TestPreconditionersInProportion checks that a preconditioner of each axis is within the limits,
// also of a vector, and that 50 are not.
func TestPreconditionersInProportion(t *testing.T) {
	testlevel.Long(t, "builds large programs")
	c := start(t, "refresher", sdk.KindOptimizer, Options{})
	tensor := refresherTensor("accepts", "")
	for _, shape := range [][]int{{8192}, {768, 3072}, {32000, 256}, {4, 8, 16}} {
		tensor.Shape = shape
		if _, err := c.Program(t.Context(), tensor); err != nil {
			t.Errorf("%v: %v", shape, err)
		}
	}
	tensor.Shape = []int{8192}
	tensor.Values = sdk.NewValues(map[string]any{"in": "accepts", "do": "", "copies": 50})
	_, err := c.Program(t.Context(), tensor)
	check(t, err, ErrProtocol, "state tensors: they have more than 273154048 elements in total")
}
