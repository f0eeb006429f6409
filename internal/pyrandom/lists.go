package pyrandom

import "fmt"

// Choice is Python's choice(list). It panics if the list is empty.
func Choice[T any](r *Random, list []T) T { return list[r.Below(len(list))] }

// Choices is Python's choices(list, k=k): it returns k elements, with repetition.
func Choices[T any](r *Random, list []T, k int) []T {
	drawn := make([]T, k)
	for i := range drawn {
		drawn[i] = list[int(r.Random()*float64(len(list)))]
	}
	return drawn
}

// Shuffle is Python's shuffle(list).
func Shuffle[T any](r *Random, list []T) {
	for i := len(list) - 1; i > 0; i-- {
		j := r.Below(i + 1)
		list[i], list[j] = list[j], list[i]
	}
}

// Sample is Python's sample(range(n), k): k different numbers below n, in the order in
// which they were drawn. It panics if n is less than k.
func (r *Random) Sample(n, k int) []int {
	if k < 0 || k > n {
		panic(fmt.Sprintf("pyrandom: no sample of %d out of %d", k, n))
	}
	if n <= largestPool(k) {
		return r.sampleOfPool(n, k)
	}
	drawn := make([]int, k)
	taken := make(map[int]bool, k)
	for i := range drawn {
		j := r.Below(n)
		for taken[j] {
			j = r.Below(n)
		}
		taken[j] = true
		drawn[i] = j
	}
	return drawn
}

// largestPool is the population up to which CPython draws k numbers from a list, as that
// takes less memory there than a set of those drawn. The two ways draw different numbers.
func largestPool(k int) int {
	const smallSet = 21
	if k <= 5 {
		return smallSet
	}
	table := 1
	for table < 3*k {
		table *= 4
	}
	return smallSet + table
}

func (r *Random) sampleOfPool(n, k int) []int {
	pool := make([]int, n)
	for i := range pool {
		pool[i] = i
	}
	drawn := make([]int, k)
	for i := range drawn {
		last := n - i - 1
		j := r.Below(last + 1)
		drawn[i] = pool[j]
		pool[j] = pool[last]
	}
	return drawn
}
