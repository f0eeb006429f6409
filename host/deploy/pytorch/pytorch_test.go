package pytorch

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// TestEveryOperation checks that every operation of programs has an expression, and that each
// function that an expression calls exists.
func TestEveryOperation(t *testing.T) {
	for _, info := range program.Ops() {
		if operations[info.Op] == nil {
			t.Errorf("there is no expression for %s", info.Name)
		}
	}
	if len(operations) != len(program.Ops()) {
		t.Errorf("%d expressions for %d operations", len(operations), len(program.Ops()))
	}
	called := map[string]bool{"finite_matrices": true, "arguments": true}
	for _, name := range []string{"iota", "random_bits", "sign", "logb", "ldexp", "hadamard", "qr",
		"eigh_values",
		"eigh_vectors", "sort_columns", "nearest", "lookup", "scatter_add", "top_k", "order_statistic"} {
		called[name] = true
	}
	for _, match := range regexp.MustCompile(`(?m)^def (\w+)\(`).
		FindAllStringSubmatch(operationsSource, -1) {
		m := newModule()
		m.helpers[match[1]] = true
		if !called[match[1]] || match[1] != "finite_matrices" &&
			!strings.Contains(m.operations(), "def "+match[1]+"(") {
			t.Errorf("the function %s is not called, or not found", match[1])
		}
		delete(called, match[1])
	}
	if len(called) > 0 {
		t.Errorf("functions that are called and do not exist: %v", called)
	}
}

// group quantizes groups of 32 elements of a row, and optionally uses the number of rows.
type group struct{ rows bool }

func (group) Describe() sdk.Description { return sdk.Description{Name: "group"} }

func (q group) Quantize(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	rows, columns := x.Shape()[0], x.Shape()[1]
	if columns%32 != 0 {
		return sdk.Quantized{}, sdk.Refuse("the width %d is not a multiple of 32", columns)
	}
	groups := x.Reshape(rows, columns/32, 32)
	scale := groups.Abs().ReduceMax(2).Reshape(rows, columns/32, 1).Scale(1 / float64(columns))
	if q.rows {
		scale = scale.Shift(float64(rows + 1))
	}
	value := groups.Div(scale).Round().Mul(scale).Reshape(rows, columns)
	return sdk.Quantized{Value: value, Surrogate: x}, nil
}

// soft is a quantizer whose gradient is the derivative of its value.
type soft struct{}

func (soft) Describe() sdk.Description { return sdk.Description{Name: "soft"} }

func (soft) Quantize(_ *program.Builder, x program.Value, _ sdk.Site) (sdk.Quantized, error) {
	y := x.Tanh()
	return sdk.Quantized{Value: y, Surrogate: y}, nil
}

func build(q sdk.Quantizer) func(sdk.Role, []int) (spec.Quantizer, error) {
	return func(role sdk.Role, shape []int) (spec.Quantizer, error) {
		return sdk.BuildQuantizer(q, Site(role, shape, sdk.Values{}))
	}
}

// TestTextsAreShared checks that programs with the same text for many widths and any number of rows
// are written once. Programs that depend on the rows are written for the requested shapes.
func TestTextsAreShared(t *testing.T) {
	testlevel.Long(t, "writes programs for all widths several times")
	text, err := Quantizer(Plugin{Name: "group"}, nil, build(group{}))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(text, "\nclass Programs"); n != 1 {
		t.Errorf("%d classes of one text:\n%s", n, text)
	}
	for _, want := range []string{"v1 = x.reshape((rows, columns // 32, 32))", "* (1 / columns)",
		"8128, 8192), Programs0)"} {
		if !strings.Contains(text, want) {
			t.Errorf("the module lacks %q:\n%s", want, text)
		}
	}
	if _, err := Quantizer(Plugin{}, nil, build(group{rows: true})); err == nil ||
		!strings.Contains(err.Error(), "--shape ROWSxCOLUMNS") {
		t.Errorf("programs that depend on the rows: %v", err)
	}
	text, err = Quantizer(Plugin{}, [][]int{{8, 64}, {24, 64}, {8, 96}}, build(group{rows: true}))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"((8, 64), (8, 96))", "((24, 64),)", " + 9.0", " + 25.0"} {
		if !strings.Contains(text, want) {
			t.Errorf("the module lacks %q:\n%s", want, text)
		}
	}
	if _, err := Quantizer(Plugin{}, [][]int{{8, 40}}, build(group{rows: true})); err == nil ||
		!strings.Contains(err.Error(), "the width 40") {
		t.Errorf("a width that the plugin refuses: %v", err)
	}
	again, err := Quantizer(Plugin{}, [][]int{{8, 64}, {24, 64}, {8, 96}}, build(group{rows: true}))
	if err != nil || again != text {
		t.Errorf("the text is another one the second time (error %v)", err)
	}
}

// TestRequestedShapes checks that a plugin is asked about no widths but the requested ones.
func TestRequestedShapes(t *testing.T) {
	asked := map[int]int{}
	text, err := Quantizer(Plugin{}, [][]int{{8, 64}, {24, 1056}},
		func(role sdk.Role, shape []int) (spec.Quantizer, error) {
			asked[shape[1]]++
			return build(group{})(role, shape)
		})
	if err != nil || !strings.Contains(text, "((64, 1056), Programs0)") {
		t.Errorf("error %v in\n%s", err, text)
	}
	// Each for two numbers of rows and two roles.
	if want := map[int]int{64: 4, 1056: 4}; !maps.Equal(asked, want) {
		t.Errorf("requests by width: %v, want %v", asked, want)
	}
}

// TestRefusals checks that errors name what PyTorch modules do not support.
func TestRefusals(t *testing.T) {
	program, err := sdk.BuildQuantizer(group{}, Site(sdk.RoleWeight, []int{2, 32}, sdk.Values{}))
	if err != nil {
		t.Fatal(err)
	}
	for want, o := range map[string]spec.Optimizer{
		"computes in its own process": {Accepts: true, Opaque: true},
		"takes a second gradient":     {Accepts: true, ProbeDue: spec.Due{First: 1}},
		"sums over tensors":           {Accepts: true, Collect: program.Program},
		"evaluates other weights":     {Accepts: true, Evaluate: program.Program},
		"rounds weights to bfloat16":  {Accepts: true, Rounded: spec.StoreBFloat16},
	} {
		_, err := Optimizer(Plugin{}, [][]int{{4, 4}},
			func([]int) (spec.Optimizer, error) { return o, nil })
		if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	searched := program
	searched.SearchEvery = 10
	_, err = Quantizer(Plugin{}, nil,
		func(sdk.Role, []int) (spec.Quantizer, error) { return searched, nil })
	if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "searches") {
		t.Errorf("a search: %v", err)
	}
	selective := func(shape []int) (spec.Optimizer, error) {
		return spec.Optimizer{Accepts: false}, nil
	}
	if _, err := Optimizer(Plugin{}, [][]int{{4, 4}}, selective); err == nil ||
		!strings.Contains(err.Error(), "does not accept a parameter of shape [4 4]") {
		t.Errorf("a parameter that is not accepted: %v", err)
	}
}

// TestLines checks that lines have at most 100 columns.
func TestLines(t *testing.T) {
	text, err := Quantizer(Plugin{Name: "group"}, nil, build(group{}))
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(strings.Split(text, "\n"),
		func(l string) bool { return len(l) > 100 }); i >= 0 {
		t.Errorf("line %d is too long: %s", i+1, strings.Split(text, "\n")[i])
	}
}

// A module has a class for each text of programs.
func ExampleQuantizer() {
	about := Plugin{Name: "group", Doc: "groups of 32.",
		Command: "cage plugins program group --to torch"}
	text, err := Quantizer(about, nil, build(group{}))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, class, _ := strings.Cut(text, "    @staticmethod\n")
	class, _, _ = strings.Cut(class, "\n    @staticmethod")
	fmt.Print(class)
	// Output:
	// def forward(x):
	//         rows, columns = x.shape
	//         v1 = x.reshape((rows, columns // 32, 32))  # reshape: float(rows, columns // 32, 32)
	//         v2 = v1.abs()  # abs: float(rows, columns // 32, 32)
	//         v3 = v2.amax((2,))  # reduce_max: float(rows, columns // 32)
	//         v4 = v3.reshape((rows, columns // 32, 1))  # reshape: float(rows, columns // 32, 1)
	//         v6 = v4 * (1 / columns)  # mul: float(rows, columns // 32, 1)
	//         v7 = v1 / v6  # div: float(rows, columns // 32, 32)
	//         v8 = v7.round()  # round: float(rows, columns // 32, 32)
	//         v9 = v8 * v6  # mul: float(rows, columns // 32, 32)
	//         v10 = v9.reshape((rows, columns))  # reshape: float(rows, columns)
	//         return v10,
}

// TestGuide checks that the guide quotes the module of QuEST.
func TestGuide(t *testing.T) {
	testlevel.Long(t, "builds a plugin")
	guide, err := os.ReadFile("../../../docs/guide/pytorch.md")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "quest.py")
	writeModule(t, "quest", path)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	quoted := 0
	for line := range strings.Lines(string(guide)) {
		if strings.HasPrefix(line, "        v") {
			if quoted++; !strings.Contains(string(text), line) {
				t.Errorf("the module has no line %q", line)
			}
		}
	}
	if quoted < 4 {
		t.Errorf("%d lines are quoted", quoted)
	}
}
