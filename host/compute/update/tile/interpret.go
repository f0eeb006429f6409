package tile

// interpret runs code on one tile, with the slots v and the scalars env, and adds to the
// lanes of reductions.
func interpret(code []instruction, v [][]float32, env []float32, sums []lanes) {
	for i := range code {
		ins := &code[i]
		switch ins.op {
		case opSum:
			sum(&sums[ins.s], v[ins.a])
		case opSumMul:
			sumMul(&sums[ins.s], v[ins.a], v[ins.b])
		case opSumDiff:
			sumDiff(&sums[ins.s], v[ins.a], v[ins.b])
		case opLargest:
			extreme(opMax, &sums[ins.s], v[ins.a])
		case opSmallest:
			extreme(opMin, &sums[ins.s], v[ins.a])
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
				fill(v[ins.dst], env[ins.t])
			}
		case opRotate:
			rotate(v[ins.dst], v[ins.a], ins.t)
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
		fill(dst, s)
	case opCopy:
		copy(dst, a)
	case opAdd:
		add(dst, a, b)
	case opAddS:
		addS(dst, a, s)
	case opSub:
		sub(dst, a, b)
	case opSubS:
		addS(dst, a, -s)
	case opFromS:
		fromS(dst, a, s)
	case opMul:
		mul(dst, a, b)
	case opMulS:
		mulS(dst, a, s)
	case opDiv:
		div(dst, a, b)
	case opDivS:
		divS(dst, a, s)
	case opIntoS:
		intoS(dst, a, s)
	case opClamp:
		clampAll(dst, a, s, t)
	case opSelect:
		choose(dst, a, b, v[ins.c])
	case opMulMulS:
		mulMulS(dst, a, b, s)
	case opLinAdd:
		linAdd(dst, a, s, b, t)
	case opLinSub:
		linSub(dst, a, s, b, t)
	case opLinMul:
		linMul(dst, a, s, b, v[ins.c], t)
	case opSqrtLin:
		sqrtLin(dst, a, s, t)
	case opMax, opMin, opPow, opEq, opNe, opLt, opLe:
		binaryAll(ins.op, dst, a, b)
	default:
		unaryAll(ins.op, dst, a)
	}
}
