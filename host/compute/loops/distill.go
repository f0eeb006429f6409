package loops

import "math"

// Distillation is the loss for distilling a teacher into a model: the generalized Jensen-Shannon
// divergence β·KL(P‖M) + (1−β)·KL(Q‖M) with M = β·P + (1−β)·Q, where P is the teacher's and Q the
// model's distribution, each the softmax of logits divided by the temperature. It is KL(P‖Q) for β
// = 0 and KL(Q‖P) for β = 1.
type Distillation struct {
	Teacher     []float32 // logits of the teacher, [rows, Columns]
	Beta        float64
	Temperature float64
	Weight      float64 // weight of the divergence in the loss; the rest is cross-entropy
	Scale       float64 // factor of the divergences
}

// distillPart is the number of columns processed at a time, so that intermediate results stay in a
// core's cache.
const distillPart = 4096

// Distilled writes the divergence and the cross-entropy of each row. It also writes the gradients
// of their weighted mean with respect to the logits, times factors, to gradients or, rounded to
// bfloat16, to short; the other slice is nil, and gradients may be the slice of the logits.
func (l Logits) Distilled(d Distillation, divergences, crossEntropies, gradients []float32,
	short []uint16, factors []float32, parallel Parallel) error {
	return l.each(parallel, func(i int, row []float32, scratch *[]float32) {
		memory := scratchOf(scratch, 2*l.Columns+5*distillPart)
		slopes, gradient, parts := memory[:l.Columns], memory[l.Columns:2*l.Columns], memory[2*l.Columns:]
		teacher, target := d.Teacher[i*l.Columns:][:l.Columns], l.Targets[i]
		scale := float32(1 / d.Temperature)
		highestP, totalP := softmaxParts(gradient, teacher, scale)
		highest, total := softmaxParts(gradient, row, 1)
		crossEntropies[i] = float32(math.Log(float64(total))) + highest - row[target]
		highestQ, totalQ := highest, total
		if scale != 1 {
			highestQ, totalQ = softmaxParts(gradient, row, scale)
		}
		ratio := math.Log(float64(totalP)) - math.Log(float64(totalQ))
		ratio = ratio + float64(highestP) - float64(highestQ)
		var sumP, sumQ float64
		for at := 0; at < l.Columns; at += distillPart {
			end := min(at+distillPart, l.Columns)
			p, log := parts[:end-at], parts[distillPart:][:end-at]
			ExpLin(p, teacher[at:end], scale, highestP)
			LinSub(log, teacher[at:end], scale, row[at:end], scale)
			BinaryS(Sub, log, log, float32(ratio)) // log P/Q
			a, b := d.slopes(slopes[at:end], p, gradient[at:end], log, parts[2*distillPart:])
			sumP, sumQ = sumP+a, sumQ+b
		}
		sumP, sumQ = sumP/float64(totalP), sumQ/float64(totalQ)
		// These are the factors of KL(P‖M) and KL(Q‖M). If β is 0 or 1, M is Q or P, and only the
		// other divergence counts.
		ofTeacher, ofModel := d.Beta, 1-d.Beta
		if d.Beta == 0 || d.Beta == 1 {
			ofTeacher, ofModel = ofModel, ofTeacher
		}
		divergences[i] = float32(d.Scale * (ofTeacher*sumP + ofModel*sumQ))
		factor, rest := factors[i]*float32(d.Weight*d.Scale/d.Temperature), factors[i]*float32(1-d.Weight)
		for at := 0; at < l.Columns; at += distillPart {
			end := min(at+distillPart, l.Columns)
			to, r := gradient[at:end], slopes[at:end]
			if d.Beta == 0 { // Q − P
				LinSub(to, to, factor/totalQ, r, factor/totalP)
			} else { // Q·(r − ΣQ·r)
				BinaryS(Sub, r, r, float32(sumQ))
				BinaryS(Mul, r, r, factor*float32(ofModel)/totalQ)
				Binary(Mul, to, to, r)
			}
			if rest != 0 {
				exponentials := parts[:end-at]
				ExpLin(exponentials, row[at:end], 1, highest)
				LinAdd(to, to, 1, exponentials, rest/total)
			}
		}
		gradient[target] -= rest
		if gradients == nil {
			ToBFloat16(short[i*l.Columns:][:l.Columns], gradient)
		} else {
			copy(gradients[i*l.Columns:], gradient)
		}
	})
}

// slopes writes r = log Q/M for a range of columns, given log P/Q, and p and q, which are
// proportional to P and Q. It returns Σp·log P/M and Σq·r. For β = 0, where M is Q, it writes p to
// r, because the gradient needs it. memory must have three elements for each column.
func (d Distillation) slopes(r, p, q, log, memory []float32) (sumP, sumQ float64) {
	var one [1]float32
	sum := func(a, b []float32) float64 {
		GroupSumMul(one[:], a, b, len(a))
		return float64(one[0])
	}
	switch d.Beta {
	case 0:
		copy(r, p)
		return sum(p, log), 0
	case 1:
		BinaryS(Mul, r, log, -1)
		return 0, sum(q, r)
	}
	// M is taken relative to the larger of P and Q: one of the two exponentials is then 1, and
	// nothing overflows.
	other, mixture := memory[:len(log)], memory[len(log):2*len(log)]
	BinaryS(Mul, other, log, -1)
	BinaryS(Min, other, other, 0)
	BinaryS(Min, log, log, 0)
	ExpLin(mixture, log, 1, 0)
	ExpLin(r, other, 1, 0)
	LinAdd(mixture, mixture, float32(d.Beta), r, float32(1-d.Beta))
	logFrom(min(d.Beta, 1-d.Beta), mixture, r, memory[2*len(log):])
	Binary(Sub, log, log, mixture)
	Binary(Sub, r, other, mixture)
	return sum(p, log), sum(q, r)
}

// logFrom replaces the elements of x, which are in [least, 1], by their logarithms: 2·artanh(z)
// with z = (x−1)/(x+1), by as many terms of the series as float32 needs, or by math.Log if that is
// faster.
func logFrom(least float64, x, z, square []float32) {
	const maxTerms = 20
	const precision = 0x1p-26
	largest := (1 - least) / (1 + least)
	if math.Pow(largest, 2*maxTerms) > precision {
		for i, v := range x {
			x[i] = float32(math.Log(float64(v)))
		}
		return
	}
	terms := int(math.Log(precision) / (2 * math.Log(largest)))
	square = square[:len(x)]
	BinaryS(Sub, z, x, 1)
	BinaryS(Add, x, x, 1)
	Binary(Div, z, z, x)
	Binary(Mul, square, z, z)
	BinaryS(Mul, x, square, float32(2/float64(2*terms+1)))
	for n := terms - 1; n > 0; n-- {
		BinaryS(Add, x, x, float32(2/float64(2*n+1)))
		Binary(Mul, x, x, square)
	}
	BinaryS(Add, x, x, 2)
	Binary(Mul, x, x, z)
}
