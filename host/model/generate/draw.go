package generate

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// candidate is a token with its unnormalized probability.
type candidate struct {
	id     int32
	weight float64
}

func (o Options) draw(rng *rand.Rand, logits []float32) (int32, error) {
	if o.Vocab > 0 {
		logits = logits[:min(len(logits), o.Vocab)]
	}
	best := 0
	for i, l := range logits {
		if math.IsNaN(float64(l)) {
			return 0, fmt.Errorf("generate: the model's logits contain NaN")
		}
		if l > logits[best] {
			best = i
		}
	}
	if math.IsInf(float64(logits[best]), 0) {
		return 0, fmt.Errorf("generate: the model's largest logit is infinite")
	}
	if o.Temperature == 0 || o.TopK == 1 {
		return int32(best), nil
	}
	list, total := make([]candidate, len(logits)), 0.0
	for i, l := range logits {
		w := math.Exp((float64(l) - float64(logits[best])) / o.Temperature)
		list[i] = candidate{int32(i), w}
		total += w
	}
	list, total = o.restrict(list, total)
	left := rng.Float64() * total
	for _, c := range list {
		if left -= c.weight; left < 0 {
			return c.id, nil
		}
	}
	return list[len(list)-1].id, nil
}

// largest returns the k candidates with the largest weights in descending order, and of those with
// the same weight the first. Sorting a large vocabulary can take longer than a small model's step.
func largest(list []candidate, k int) []candidate {
	var best []candidate
	least := -1.0 // below all weights
	for _, c := range list {
		if c.weight <= least {
			continue
		}
		if best = append(best, c); len(best) == 2*k {
			sortByWeight(best)
			best, least = best[:k], best[k-1].weight
		}
	}
	sortByWeight(best)
	return best[:min(len(best), k)]
}

// sortByWeight sorts candidates in descending order, and those with the same weight as they were.
func sortByWeight(list []candidate) {
	slices.SortStableFunc(list, func(a, b candidate) int { return cmp.Compare(b.weight, a.weight) })
}

// restrict applies TopK and then TopP to the candidates, and returns the remaining ones with the
// sum of their weights.
func (o Options) restrict(list []candidate, total float64) ([]candidate, float64) {
	nucleus, few := o.TopP > 0 && o.TopP < 1, o.TopK > 0 && o.TopK < len(list)
	if nucleus && !few {
		// Candidates below this weight add up to less than the share that TopP excludes, and can be
		// dropped before sorting.
		least := (1 - o.TopP) * total / float64(len(list))
		list = slices.DeleteFunc(list, func(c candidate) bool { return c.weight < least })
	}
	if few { // TopP then refers to the sum of these
		list, total = largest(list, o.TopK), 0
		for _, c := range list {
			total += c.weight
		}
	} else if nucleus {
		sortByWeight(list)
	}
	if !nucleus {
		return list, total
	}
	sum := 0.0
	for i, c := range list {
		if sum += c.weight; sum >= o.TopP*total {
			return list[:i+1], sum
		}
	}
	return list, sum
}
