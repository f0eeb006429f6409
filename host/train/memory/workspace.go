package memory

import "github.com/cage-qat/cage/sdk/program"

// Workspace estimates the number of elements that an executor works with in addition to
// the inputs and outputs of a program: the values that are needed at the same time. A
// program with only elementwise operations needs none.
func Workspace(p *program.Program) float64 {
	if p == nil || !products(p) {
		return 0
	}
	last := map[program.ID]int{}
	for i, n := range p.Nodes {
		for _, arg := range n.Args {
			last[arg] = i
		}
	}
	var now, most float64
	ends := map[int]float64{}
	for i, n := range p.Nodes {
		size := float64(n.Type.Size())
		now += size
		ends[max(i, last[program.ID(len(p.Inputs)+i)])] += size
		most = max(most, now)
		now -= ends[i]
	}
	return most
}

// RefreshWorkspace is [Workspace] for a refresh, which is computed in float64 on copies of its inputs. It counts in
// elements of 4 bytes.
func RefreshWorkspace(p *program.Program) float64 {
	if p == nil {
		return 0
	}
	inputs := 0.0
	for _, in := range p.Inputs {
		inputs += float64(in.Type.Size())
	}
	return 2 * (inputs + Workspace(p))
}

// products tells whether a program multiplies or factorizes matrices.
func products(p *program.Program) bool {
	for _, n := range p.Nodes {
		info, _ := n.Op.Info() // a valid program has no other
		if info.Class == program.ClassLinear || info.Class == program.ClassLinalg {
			return true
		}
	}
	return false
}
