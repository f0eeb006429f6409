package model

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
)

// With [Options.Documents], a model reads rows that hold several documents, one after the other, or
// one and padding: attention is restricted to a document, a target is always in the same document
// as the token that predicts it, and each target has a weight. The losses of a document are the
// same as in a row of its own. Positions do not restart: rotary position embeddings depend only on
// differences of positions.
//
// The rows of a batch are those of [dataset.Row].

type sequences struct {
	tokens   *graph.Node // [batch, context+1]
	segments *graph.Node // [batch, context] of the inputs, nil: each row is one document
	weights  *graph.Node // [batch, context] of the targets, nil: all are 1
}

func (m *transformer) readBatch(batch *graph.Node) sequences {
	if !m.Documents {
		return sequences{tokens: batch}
	}
	plane := func(i, from, to int) *graph.Node {
		return graph.Squeeze(graph.Slice(batch, graph.AxisRange(), graph.AxisElem(i),
			graph.AxisRange(from, to)), 1)
	}
	length := batch.Shape().Dim(2)
	return sequences{
		tokens:   plane(0, 0, length),
		segments: plane(1, 0, length-1),
		weights:  graph.Bitcast(plane(2, 1, length), dtypes.Float32),
	}
}

// zeroPadding returns a quantizer that sets padding to zero before it calls q, so that statistics
// over a batch do not depend on padding.
func (q ActivationQuantizer) zeroPadding(segments *graph.Node) ActivationQuantizer {
	if q == nil || segments == nil {
		return q
	}
	used := graph.GreaterOrEqual(graph.Reshape(segments, -1, 1),
		graph.ScalarZero(segments.Graph(), segments.DType()))
	return func(site ActivationSite, x *graph.Node) *graph.Node {
		return q(site, graph.Mul(x, graph.ConvertDType(used, x.DType())))
	}
}

// sameDocument reports for each query and key whether they are in the same document, [batch,
// queries, keys].
func sameDocument(segments *graph.Node) *graph.Node {
	return graph.Equal(graph.InsertAxes(segments, 2), graph.InsertAxes(segments, 1))
}
