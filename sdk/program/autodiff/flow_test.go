package autodiff

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/sdk/program"
)

// pipes is a random network of the form that cut builds: pipe v has the capacity weights[v], and
// earlier pipes may feed later ones.
type pipes struct {
	weights      []int64
	feeds        [][2]int
	source, sink []int
}

func randomPipes(rng *rand.Rand) pipes {
	n := 2 + rng.IntN(9)
	p := pipes{source: []int{0}, sink: []int{n - 1}}
	for v := range n {
		p.weights = append(p.weights, int64(1+rng.IntN(6)))
		for w := range v {
			if rng.IntN(3) == 0 {
				p.feeds = append(p.feeds, [2]int{w, v})
			}
		}
		if rng.IntN(4) == 0 {
			p.source = append(p.source, v)
		}
		if rng.IntN(4) == 0 {
			p.sink = append(p.sink, v)
		}
	}
	return p
}

func (p pipes) cut() []program.ID {
	n := len(p.weights)
	f := &network{edges: make([][]int, 2*n+2)}
	for v, w := range p.weights {
		f.connect(2*v, 2*v+1, w)
	}
	for _, e := range p.feeds {
		f.connect(2*e[0]+1, 2*e[1], infiniteCapacity)
	}
	for _, v := range p.source {
		f.connect(2*n, 2*v, infiniteCapacity)
	}
	for _, v := range p.sink {
		f.connect(2*v+1, 2*n+1, infiniteCapacity)
	}
	return f.cutPipes(2*n, 2*n+1, n)
}

// separates reports whether every path from source to sink goes through a pipe of the set.
func (p pipes) separates(set int) bool {
	wet := make([]bool, len(p.weights)) // whether the far end of each pipe is reached
	for v := range p.weights {
		fed := false
		for _, s := range p.source {
			fed = fed || s == v
		}
		for _, e := range p.feeds {
			fed = fed || (e[1] == v && wet[e[0]])
		}
		wet[v] = fed && set&(1<<v) == 0
	}
	for _, s := range p.sink {
		if wet[s] {
			return false
		}
	}
	return true
}

func (p pipes) weight(set int) (sum int64) {
	for v, w := range p.weights {
		if set&(1<<v) != 0 {
			sum += w
		}
	}
	return sum
}

func TestCutIsMinimal(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		p := randomPipes(rng)
		best := int64(infiniteCapacity)
		for set := range 1 << len(p.weights) {
			if p.separates(set) {
				best = min(best, p.weight(set))
			}
		}
		got := 0
		for _, id := range p.cut() {
			got |= 1 << id
		}
		if !p.separates(got) || p.weight(got) != best {
			t.Fatalf("cut %b weighs %d (separates: %v), the minimum is %d: %+v", got, p.weight(got),
				p.separates(got), best, p)
		}
	}
}

func TestCutIsNearestToTheSink(t *testing.T) {
	chain := pipes{weights: []int64{2, 2, 2}, feeds: [][2]int{{0, 1}, {1, 2}}, source: []int{0},
		sink: []int{2}}
	if diff := cmp.Diff([]program.ID{2}, chain.cut()); diff != "" {
		t.Error(diff)
	}
}
