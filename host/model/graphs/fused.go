package graphs

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/internal/lists"
)

// fusedCore returns a core that is one device operation forward and one backward, in bfloat16 with
// sums in float32, and saves one number for each query and head (Dao et al., 2022). It multiplies
// scores by scale. The operations are cuDNN's, which XLA calls by the names and with the
// configuration of JAX's jax/_src/cudnn/fused_attention_stablehlo.py. GPUs alone compile them.
func fusedCore(scale float64) attentionCore {
	return func(query, key, value *graph.Node) (*graph.Node, attentionBack) {
		dims := query.Shape().Dimensions
		batch, context, heads, size := dims[0], dims[1], dims[2], dims[3]
		group := heads / key.Shape().Dim(2)
		perQuery := func(x *graph.Node) *graph.Node { // cuDNN has as many key heads as query heads
			x = graph.Reshape(toBFloat16(x), batch, context, heads/group, 1, size)
			x = graph.BroadcastToDims(x, batch, context, heads/group, group, size)
			return graph.Reshape(x, dims...)
		}
		q, k, v := toBFloat16(query), perQuery(key), perQuery(value)
		byHead := shapes.Make(shapes.BFloat16, batch, heads, context, size)
		scratch := shapes.Make(shapes.Uint8, 0)
		out := cudnn("__cudnn$fmhaSoftmax", scale, map[string]contraction{
			"bmm1": {3, 3, headAxes, headAxes}, "bmm2": {3, 1, scoreAxes, headAxes}},
			[]*graph.Node{q, k, v},
			[]shapes.Shape{byHead, shapes.Make(shapes.Float32, batch, heads, context), scratch})
		byToken := func(x *graph.Node) *graph.Node { return graph.TransposeAllAxes(x, 0, 2, 1, 3) }
		mixed, logSums := byToken(out[0]), out[1]
		return toFloat32(mixed), func(dMixed *graph.Node) (*graph.Node, *graph.Node, *graph.Node) {
			d := cudnn("__cudnn$fmhaSoftmaxBackward", scale, map[string]contraction{
				"bmm1_grad_gemm1": {2, 1, scoreAxes, headAxes},
				"bmm1_grad_gemm2": {3, 1, scoreAxes, headAxes},
				"bmm2_grad_gemm1": {2, 1, scoreAxes, headAxes},
				"bmm2_grad_gemm2": {3, 3, headAxes, headAxes}},
				[]*graph.Node{q, k, v, logSums, toBFloat16(dMixed), mixed},
				[]shapes.Shape{byHead, byHead, byHead, scratch})
			perKey := func(x *graph.Node) *graph.Node {
				x = byToken(x)
				if group > 1 {
					x = graph.ReduceSum(graph.Reshape(x, batch, context, heads/group, group, size), 3)
				}
				return toFloat32(x)
			}
			return toFloat32(byToken(d[0])), perKey(d[1]), perKey(d[2])
		}
	}
}

// A contraction describes a product to cuDNN: the contracted and the batch axes of both operands.
type contraction struct {
	left, right           int
	leftBatch, rightBatch []string
}

// The axes of batch and head, of [batch, context, heads, size] and of scores.
var headAxes, scoreAxes = []string{"0", "2"}, []string{"0", "1"}

// cudnn calls an operation of cuDNN on queries [batch, context, heads, size] and more.
func cudnn(target string, scale float64, products map[string]contraction, in []*graph.Node,
	results []shapes.Shape) []*graph.Node {
	dims := in[0].Shape().Dimensions
	type object = map[string]any
	fields := object{
		"algorithm": object{"algo_id": "0", "math_type": "TENSOR_OP_MATH", "is_cudnn_frontend": true,
			"tuning_knobs": object{"17": "1", "24": "0"}, "workspace_size": "0"},
		"fmha_scale": scale,
		"intermediate_tensor_shape": object{"element_type": "BF16", "tuple_shapes": []any{},
			"dimensions": lists.Map([]int{dims[0], dims[2], dims[1], dims[1]},
				func(d int) string { return fmt.Sprint(d) }),
			"is_dynamic_dimension": make([]bool, 4),
			"layout": object{"minor_to_major": []string{"3", "2", "1", "0"}, "memory_space": "0",
				"dim_level_types": []any{}, "dim_unique": []any{}, "dim_ordered": []any{}, "tiles": []any{},
				"element_size_in_bits": "0", "index_primitive_type": "PRIMITIVE_TYPE_INVALID",
				"pointer_primitive_type":              "PRIMITIVE_TYPE_INVALID",
				"dynamic_shape_metadata_prefix_bytes": "0"}},
		"is_flash_attention": true, "mask_type": "CAUSAL", "dropout_rate": 0, "seed": 42,
		"sliding_window_length": 0, "max_seg_per_batch": 1, "is_paged_attention": false,
	}
	for name, p := range products {
		fields[name+"_dot_dimension_numbers"] = object{
			"lhs_contracting_dimensions": []string{fmt.Sprint(p.left)},
			"rhs_contracting_dimensions": []string{fmt.Sprint(p.right)},
			"lhs_batch_dimensions":       p.leftBatch, "rhs_batch_dimensions": p.rightBatch}
	}
	config, err := json.Marshal(object{"operation_queue_id": "0", "cudnn_fmha_backend_config": fields})
	if err != nil {
		panic(err)
	}
	return graph.CustomCall(target, in, results,
		graph.Attribute{Name: "api_version", Value: "2 : i32"},
		graph.Attribute{Name: "backend_config", Value: graph.Quoted(string(config))},
		graph.Attribute{Name: "operand_layouts", Value: layouts(lists.Map(in, (*graph.Node).Shape),
			"3, 2, 1, 0")},
		graph.Attribute{Name: "result_layouts", Value: layouts(results, "3, 1, 2, 0")})
}

// layouts describes tensors in memory. Those of rank 4 have the given order of axes, from the one
// whose elements follow each other; others are in row-major order.
func layouts(list []shapes.Shape, ofFour string) string {
	return "[" + strings.Join(lists.Map(list, func(s shapes.Shape) string {
		order := map[int]string{1: "0", 3: "[2, 1, 0]", 4: "[" + ofFour + "]"}[s.Rank()]
		return fmt.Sprintf("dense<%s> : tensor<%dxindex>", order, s.Rank())
	}), ", ") + "]"
}
