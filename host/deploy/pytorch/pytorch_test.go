package pytorch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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

// TestShapes checks that a module has the programs of the requested shapes, also where a plugin
// writes others for them, and of no other shape.
func TestShapes(t *testing.T) {
	text, err := Quantizer(Plugin{Name: "group"}, [][]int{{8, 64}, {24, 64}, {8, 96}, {8, 40}},
		build(group{rows: true}))
	if err != nil {
		t.Fatal(err)
	}
	const table = `
PROGRAMS = {
    ("weight", (8, 64)): Programs0,
    ("weight", (24, 64)): Programs1,
    ("weight", (8, 96)): Programs2,
    ("weight", (8, 40)): "the width 40 is not a multiple of 32",
    ("activation", (8, 64)): Programs0,
    ("activation", (24, 64)): Programs1,
    ("activation", (8, 96)): Programs2,
    ("activation", (8, 40)): "the width 40 is not a multiple of 32",
}
`
	for _, want := range []string{table, "x.reshape((8, 2, 32))", "* 0.015625", " + 9.0", " + 25.0"} {
		if !strings.Contains(text, want) {
			t.Errorf("the module lacks %q:\n%s", want, text)
		}
	}
	if _, err := Quantizer(Plugin{}, nil, build(group{})); err == nil ||
		!strings.Contains(err.Error(), "want --shape ROWSxCOLUMNS") {
		t.Errorf("no shape: %v", err)
	}
	if _, err := Quantizer(Plugin{}, [][]int{{8, 40}}, build(group{})); err == nil ||
		!strings.Contains(err.Error(), "the width 40") {
		t.Errorf("a module without programs: %v", err)
	}
	one := func(shape []int) (spec.Optimizer, error) { return spec.Optimizer{}, errors.New("called") }
	if _, err := Optimizer(Plugin{}, nil, one); !errors.Is(err, errNoShapes) {
		t.Errorf("an optimizer without shapes: %v", err)
	}
}

// TestErrors checks that an error of a plugin, at any of its answers, is that of the module.
func TestErrors(t *testing.T) {
	shapes := [][]int{{8, 64}, {8, 96}}
	for at := range 4 {
		want, n := fmt.Errorf("answer %d: %w", at, context.Canceled), 0
		text, err := Quantizer(Plugin{}, shapes, func(r sdk.Role, shape []int) (spec.Quantizer, error) {
			if n++; n == at+1 {
				return spec.Quantizer{}, want
			}
			return build(group{})(r, shape)
		})
		if !errors.Is(err, want) || text != "" {
			t.Errorf("answer %d fails: %v", at, err)
		}
	}
	for at, shape := range [][]int{{8, 64}, {8, 96}, nil} {
		failed := errors.New("failed")
		text, err := Optimizer(Plugin{}, shapes, func(s []int) (spec.Optimizer, error) {
			if slices.Equal(s, shape) {
				return spec.Optimizer{}, failed
			}
			p, err := sdk.BuildQuantizer(soft{}, Site(sdk.RoleWeight, []int{2, 2}, sdk.Values{}))
			return spec.Optimizer{Accepts: true, Update: p.Program}, err
		})
		if !errors.Is(err, failed) || text != "" {
			t.Errorf("tensor %d fails: %v", at, err)
		}
	}
}

// TestTexts checks that no text of a plugin or command line ends a literal of Python.
func TestTexts(t *testing.T) {
	for _, doc := range []string{`"""`, `C:\Users\N{x}`, "two\nlines", "a\x00b\xffc", `ends with \`,
		`ends with "`, "\u2028\u202e\ufeff", "\"\"\"\nimport os\n\"\"\"", "größer"} {
		p := Plugin{Name: "group", Doc: doc, Command: "cage --set text=" + doc}
		refuse := func(role sdk.Role, shape []int) (spec.Quantizer, error) {
			if role == sdk.RoleActivation {
				return spec.Quantizer{}, sdk.Refuse("%s", doc)
			}
			return build(group{})(role, shape)
		}
		text, err := Quantizer(p, [][]int{{8, 64}}, refuse)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(text, "\n")
		for _, got := range []struct{ line, before, want, after string }{
			{lines[0], `"""`, "group: " + doc, ""},
			{lines[2], "", "Written by: " + p.Command, ""},
			{lines[slices.Index(lines, "PROGRAMS = {")+2], `    ("activation", (8, 64)): "`, doc, `",`},
		} {
			inner := strings.TrimSuffix(strings.TrimPrefix(got.line, got.before), got.after)
			// Go and Python have the same escapes, but Go reads \xff as a byte.
			inner, err := strconv.Unquote(`"` + inner + `"`)
			if err != nil || inner != got.want {
				t.Errorf("%q: %s (%v)", doc, got.line, err)
			}
		}
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
	_, err = Quantizer(Plugin{}, [][]int{{2, 32}},
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
	text, err := Quantizer(Plugin{Name: "group"}, [][]int{{4096, 4096}}, build(group{}))
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(strings.Split(text, "\n"),
		func(l string) bool { return len(l) > 100 }); i >= 0 {
		t.Errorf("line %d is too long: %s", i+1, strings.Split(text, "\n")[i])
	}
}

// A module has a class for each text of programs. Those of weights and activations are the same.
func ExampleQuantizer() {
	about := Plugin{Name: "group", Doc: "groups of 32.",
		Command: "cage plugins program group --to torch"}
	text, err := Quantizer(about, [][]int{{8, 64}}, build(group{}))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, class, _ := strings.Cut(text, "    @staticmethod\n")
	class, _, _ = strings.Cut(class, "\n    @staticmethod")
	fmt.Print(class)
	// Output:
	// def forward(x):
	//         v1 = x.reshape((8, 2, 32))  # reshape: float(8, 2, 32)
	//         v2 = v1.abs()  # abs: float(8, 2, 32)
	//         v3 = v2.amax((2,))  # reduce_max: float(8, 2)
	//         v4 = v3.reshape((8, 2, 1))  # reshape: float(8, 2, 1)
	//         v6 = v4 * 0.015625  # mul: float(8, 2, 1)
	//         v7 = v1 / v6  # div: float(8, 2, 32)
	//         v8 = v7.round()  # round: float(8, 2, 32)
	//         v9 = v8 * v6  # mul: float(8, 2, 32)
	//         v10 = v9.reshape((8, 64))  # reshape: float(8, 64)
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
	writeModule(t, "quest", path, [][]int{{576, 576}})
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
