package graphs

import (
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
)

// built returns the program that write writes.
func built(name string, write func(b *program.Builder)) *program.Program {
	b := program.NewSimplifier(name)
	write(b)
	p, err := b.Build()
	if err != nil {
		panic(err)
	}
	return p
}

// distillation is the rule for the losses, divergences and cross-entropies of tokens, given those
// of a teacher.
func distillation(limit int) lower.Rule {
	compute := func(c lower.Call, d *graph.Node) (results, gradients []*graph.Node) {
		by := c.Setting.(network.Distilling)
		x, w, teacherX, teacherW := c.Args[0], c.Args[1], c.Args[3], c.Args[4]
		tokens, vocabulary := x.Shape().Dim(0), w.Shape().Dim(0)
		n := chunks(tokens, vocabulary, limit)
		perToken := append(operands(n, x, teacherX), column(c.Args[2]))
		one := ofTokens(shapes.Float32, tokens)
		like, sums := []shapes.Shape{one, one, one}, []shapes.Shape(nil)
		if d != nil {
			perToken = append(perToken, column(d))
			like, sums = append(like, x.Shape()), append(sums, w.Shape())
		}
		results, totals := overChunks(n, operands(n, w, teacherW), perToken, like, sums,
			func(c chunk) (results, sums []*graph.Node) {
				h, of := c.perToken[0], head{c.whole[0], by.Cap}
				logits := of.logits(h)
				teacher := head{c.whole[1], by.TeacherCap}.logits(c.perToken[1])
				in := []*graph.Node{logits, teacher, row(c.perToken[2])}
				g, p := h.Graph(), distilled(by.Distillation, tokens/n, vocabulary)
				for _, v := range lower.Outputs(g, p, in) {
					results = append(results, column(v))
				}
				if d == nil {
					return results, nil
				}
				vjp, err := autodiff.VJP(p, "loss", "logits")
				if err != nil {
					panic(err)
				}
				dLogits := lower.Outputs(g, vjp, append(in, row(c.perToken[3])))[0]
				dh, dw := of.adjoints(h, logits, dLogits)
				return append(results, dh), []*graph.Node{dw}
			})
		for i := range 3 {
			results[i] = row(results[i])
		}
		return results[:3], append(results[3:], totals...)
	}
	return lower.Rule{
		Forward: func(c lower.Call) ([]*graph.Node, lower.Back) {
			results, _ := compute(c, nil)
			return results, nil
		},
		Both: func(c lower.Call, d []lower.Adjoint) (results, gradients []*graph.Node) {
			if d[1].Node() != nil || d[2].Node() != nil {
				panic("divergences and cross-entropies have no gradients")
			}
			results, gradients = compute(c, d[0].Node())
			return results, append(gradients, nil, nil, nil)
		},
	}
}

// distilled returns the program of the losses of rows of logits.
func distilled(by network.Distillation, rows, columns int) *program.Program {
	return built("loss/distilled", func(b *program.Builder) {
		t := program.FloatType(rows, columns)
		logits, teacher := b.Input("logits", t), b.Input("teacher", t)
		targets := b.Input("targets", program.Type{DType: program.Int, Shape: []int{rows}})
		loss, divergence, entropy := by.Losses(logits, teacher, targets)
		b.Output("loss", loss)
		b.Output("divergence", divergence)
		b.Output("cross_entropy", entropy)
	})
}

// draw samples targets from the predictions of tokens.
func draw(limit int) func(c lower.Call) ([]*graph.Node, lower.Back) {
	return func(c lower.Call) ([]*graph.Node, lower.Back) {
		x, w, key, cap := c.Args[0], c.Args[1], c.Args[2], c.Setting.(float64)
		tokens, vocabulary := x.Shape().Dim(0), w.Shape().Dim(0)
		n := chunks(tokens, vocabulary, limit)
		p := built("loss/draw", func(b *program.Builder) {
			t := program.FloatType(tokens/n, vocabulary)
			bits := b.Input("bits", program.Type{DType: program.Uint, Shape: t.Shape})
			b.Output("column", network.Drawn(b.Input("logits", t), bits))
		})
		results, _ := overChunks(n, append(operands(n, w), key), operands(n, x),
			[]shapes.Shape{ofTokens(shapes.Int32, tokens)}, nil,
			func(c chunk) (results, sums []*graph.Node) {
				first := graph.ConvertDType(graph.MulScalar(c.first, float64(vocabulary)), shapes.Uint32)
				bits := lower.RandomBits(c.whole[1], first, tokens/n, vocabulary)
				logits := head{c.whole[0], cap}.logits(c.perToken[0])
				return lower.Outputs(key.Graph(), p, []*graph.Node{bits, logits}), nil
			})
		return []*graph.Node{row(results[0])}, nil
	}
}

// scores computes the log-probabilities of targets, and the likeliest tokens.
func scores(limit int) func(c lower.Call) ([]*graph.Node, lower.Back) {
	return func(c lower.Call) ([]*graph.Node, lower.Back) {
		x, w, cap := c.Args[0], c.Args[1], c.Setting.(float64)
		tokens := x.Shape().Dim(0)
		n := chunks(tokens, w.Shape().Dim(0), limit)
		results, _ := overChunks(n, operands(n, w), append(operands(n, x), column(c.Args[2])),
			[]shapes.Shape{ofTokens(shapes.Float32, tokens), ofTokens(shapes.Int32, tokens)}, nil,
			func(c chunk) (results, sums []*graph.Node) {
				logits := head{c.whole[0], cap}.logits(c.perToken[0])
				losses, _ := maskedLosses(logits, c.perToken[1])
				return []*graph.Node{graph.Neg(losses), column(graph.ArgMax(logits))}, nil
			})
		return []*graph.Node{row(results[0]), row(results[1])}, nil
	}
}
