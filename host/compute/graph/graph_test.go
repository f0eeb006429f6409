package graph_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/shapes"
)

// A mean of squares, as StableHLO. Its first parameter may give its memory to the result.
func Example() {
	g := graph.New("mean of squares", 1)
	x := graph.Parameter(g, "x", shapes.Make(shapes.Float32, 2, 3))
	g.Return([]*graph.Node{graph.ReduceMean(graph.Square(x), -1)})
	fmt.Print(g.Text(nil))
	// Output:
	// module @mean_of_squares {
	//   func.func @main(%x: tensor<2x3xf32>) -> (tensor<2xf32>) {
	//     %0 = "stablehlo.multiply"(%x, %x) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
	//     %1 = "stablehlo.constant"() { value = dense<0.00000000e+00> : tensor<f32> } : () -> tensor<f32>
	//     %2 = "stablehlo.reduce"(%0, %1) ({
	//       ^bb0(%3: tensor<f32>, %4: tensor<f32>):
	//         %5 = "stablehlo.add"(%3, %4) : (tensor<f32>, tensor<f32>) -> tensor<f32>
	//         "stablehlo.return"(%5) : (tensor<f32>) -> ()
	//     }) { dimensions = array<i64: 1> } : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
	//     %6 = "stablehlo.constant"() { value = dense<3.33333343e-01> : tensor<f32> } : () -> tensor<f32>
	//     %7 = "stablehlo.broadcast_in_dim"(%6) { broadcast_dimensions = array<i64> } : (tensor<f32>) -> tensor<2xf32>
	//     %8 = "stablehlo.multiply"(%2, %7) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
	//     "stablehlo.return"(%8) : (tensor<2xf32>) -> ()
	//   }
	// }
}

// TestText checks what the example does not have: replicas, aliases, names, loops, tables, bools,
// infinity, and attributes with fields.
func TestText(t *testing.T) {
	g := graph.New("1 step", 2)
	x := graph.Parameter(g, "layer/w 1", shapes.Make(shapes.Float32, 2))
	y := graph.Parameter(g, "layer_w_1", shapes.Make(shapes.BFloat16, 4, 2))
	table := graph.Constant(g, []float32{1, -2}, 2)
	mask := graph.Constant(g, []bool{true, false, false, true}, 2, 2)
	loop := graph.While(func(in []*graph.Node) *graph.Node {
		return graph.LessThan(in[0], graph.Const(g, uint32(3)))
	}, func(in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.AddScalar(in[0], 1)}
	}, []*graph.Node{graph.Const(g, uint32(0))})
	product := graph.Product{Contracted: [2][]int{{1}, {1}}, Result: shapes.Float32}
	g.Return([]*graph.Node{graph.Add(x, table), mask, graph.AllGather(x), loop[0],
		product.Of(y, y), graph.ReduceMax(x)})
	text := g.Text(map[int]int{0: 0})
	for _, want := range []string{
		"module @_1_step attributes {stablehlo.num_replicas = 2} {",
		"(%layer_w_1: tensor<2xf32> { tf.aliasing_output = 0 : i32 }, %layer_w_1_: tensor<4x2xbf16>) -> ",
		`dense<"0x0000803F000000C0"> : tensor<2xf32>`,
		"dense<[[true, false], [false, true]]> : tensor<2x2xi1>",
		"dense<0xFF800000> : tensor<f32>",
		"comparison_direction = #stablehlo<comparison_direction LT>, " +
			"compare_type = #stablehlo<comparison_type UNSIGNED>",
		"}, {\n",
		`all_gather"(%layer_w_1) { all_gather_dim = 0 : i64, ` +
			"replica_groups = dense<[[0, 1]]> : tensor<1x2xi64> } : (tensor<2xf32>) -> tensor<4xf32>",
		"dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [], " +
			"rhs_batching_dimensions = [], lhs_contracting_dimensions = [1], " +
			"rhs_contracting_dimensions = [1]>",
		": (tensor<4x2xbf16>, tensor<4x2xbf16>) -> tensor<4x4xf32>",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
}

// TestMistakes checks that mistakes are errors that name the shapes.
func TestMistakes(t *testing.T) {
	for want, build := range map[string]func(g *graph.Graph, x *graph.Node){
		"operands have shapes [float32[2,3] float32[3,2]]": func(g *graph.Graph, x *graph.Node) {
			graph.Add(x, graph.TransposeAllAxes(x, 1, 0))
		},
		"operands have shapes [float32[2,3] int32[2,3]]": func(g *graph.Graph, x *graph.Node) {
			graph.Mul(x, graph.ConvertDType(x, shapes.Int32))
		},
		"float32[2,3] does not have the elements of float32[4]": func(g *graph.Graph, x *graph.Node) {
			graph.Reshape(x, 4)
		},
		"float32[2,3] cannot be repeated to dimensions [4 3]": func(g *graph.Graph, x *graph.Node) {
			graph.BroadcastToDims(x, 4, 3)
		},
		"range {1 4 1} of axis 0 of float32[2,3]": func(g *graph.Graph, x *graph.Node) {
			graph.Slice(x, graph.AxisRange(1, 4))
		},
		"a product of float32[2,3] and float32[2,3]": func(g *graph.Graph, x *graph.Node) {
			graph.Product{Contracted: [2][]int{{1}, {0}}}.Of(x, x)
		},
		"is of another function": func(g *graph.Graph, x *graph.Node) {
			graph.While(func([]*graph.Node) *graph.Node { return x },
				func(in []*graph.Node) []*graph.Node { return in }, []*graph.Node{x})
		},
		"returns [float32], want [float32[2,3]]": func(g *graph.Graph, x *graph.Node) {
			graph.While(func([]*graph.Node) *graph.Node { return graph.Const(g, true) },
				func(in []*graph.Node) []*graph.Node { return []*graph.Node{graph.ReduceSum(in[0])} },
				[]*graph.Node{x})
		},
		"the bits of bool are not those of uint8": func(_ *graph.Graph, x *graph.Node) {
			graph.Bitcast(graph.IsFinite(x), shapes.Uint8)
		},
		"an operand is nil": func(_ *graph.Graph, x *graph.Node) { graph.Sub(x, nil) },
		"is of another graph": func(_ *graph.Graph, x *graph.Node) {
			graph.Add(x, graph.Const(graph.New("other", 1), float32(1)))
		},
		`already a parameter with name "x"`: func(g *graph.Graph, x *graph.Node) {
			graph.Parameter(g, "x", x.Shape())
		},
	} {
		func() {
			g := graph.New("mistake", 1)
			defer func() {
				if err, _ := recover().(error); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q in it", err, want)
				}
			}()
			build(g, graph.Parameter(g, "x", shapes.Make(shapes.Float32, 2, 3)))
		}()
	}
}

// TestNotes checks that notes are found by type, the last one first, and copied.
func TestNotes(t *testing.T) {
	g := graph.New("notes", 1)
	x, y := graph.Const(g, float32(1)), graph.Const(g, float32(2))
	graph.Note(x, 1)
	graph.Note(x, "one")
	graph.Note(x, 2)
	graph.CopyNotes(y, x)
	n, _ := graph.NoteOf[int](y)
	text, _ := graph.NoteOf[string](y)
	_, ok := graph.NoteOf[bool](y)
	if diff := cmp.Diff([]any{2, "one", false}, []any{n, text, ok}); diff != "" {
		t.Error(diff)
	}
}
