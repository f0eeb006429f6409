package tile

import "github.com/cage-qat/cage/host/compute/loops"

// folds has the operations on two elements that reductions consist of.
var folds = [256]loops.Op{opSum: loops.Add, opLargest: loops.Max, opSmallest: loops.Min}

// interpret runs code on one tile, with the slots v and the scalars env, and adds to the
// lanes of reductions.
func interpret(code []instruction, v [][]float32, env []float32, sums []loops.Lanes) {
	for i := range code {
		ins := &code[i]
		switch ins.op {
		case opSum:
			sums[ins.s].Sum(v[ins.a])
		case opSumMul:
			sums[ins.s].SumMul(v[ins.a], v[ins.b])
		case opSumDiff:
			sums[ins.s].SumDiff(v[ins.a], v[ins.b])
		case opLargest, opSmallest:
			sums[ins.s].Extreme(folds[ins.op], v[ins.a])
		case opSelectS:
			if env[ins.s] != 0 {
				v[ins.dst] = v[ins.a]
			} else {
				v[ins.dst] = v[ins.b]
			}
		case opSelectZ:
			v[ins.dst] = v[ins.a]
			if env[ins.s] == 0 {
				v[ins.dst] = v[ins.c]
				loops.Fill(v[ins.dst], env[ins.t])
			}
		case opRotate:
			loops.Rotate(v[ins.dst], v[ins.a], ins.t)
		default:
			ins.compute(v, env)
		}
	}
}

// compute runs an elementwise operation.
func (ins *instruction) compute(v [][]float32, env []float32) {
	dst, a, b, s, t := v[ins.dst], v[ins.a], v[ins.b], env[ins.s], env[ins.t]
	switch ins.op {
	case opFill:
		loops.Fill(dst, s)
	case opCopy:
		copy(dst, a)
	case opAddS:
		loops.BinaryS(loops.Add, dst, a, s)
	case opSubS:
		loops.BinaryS(loops.Sub, dst, a, s)
	case opFromS:
		loops.SBinary(loops.Sub, dst, s, a)
	case opMulS:
		loops.BinaryS(loops.Mul, dst, a, s)
	case opDivS:
		loops.BinaryS(loops.Div, dst, a, s)
	case opIntoS:
		loops.SBinary(loops.Div, dst, s, a)
	case opClamp:
		loops.Clamp(dst, a, s, t)
	case opSelect:
		loops.Select(dst, a, b, v[ins.c])
	case opMulMulS:
		loops.MulMulS(dst, a, b, s)
	case opLinAdd:
		loops.LinAdd(dst, a, s, b, t)
	case opLinSub:
		loops.LinSub(dst, a, s, b, t)
	case opLinMul:
		loops.LinMul(dst, a, s, b, v[ins.c], t)
	case opSqrtLin:
		loops.SqrtLin(dst, a, s, t)
	case loops.Add, loops.Sub, loops.Mul, loops.Div, loops.Max, loops.Min, loops.Pow, loops.Eq, loops.Ne, loops.Lt, loops.Le:
		loops.Binary(ins.op, dst, a, b)
	default:
		loops.Unary(ins.op, dst, a)
	}
}
