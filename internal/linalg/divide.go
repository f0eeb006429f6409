package linalg

import (
	"cmp"
	"math"
	"slices"

	"github.com/cage-qat/cage/internal/lists"
	"gonum.org/v1/gonum/lapack"
	lapackgonum "gonum.org/v1/gonum/lapack/gonum"
)

// leaf is the largest order of a tridiagonal matrix that is decomposed by QR iteration.
const leaf = 32

// divide decomposes the tridiagonal matrix d, e by divide and conquer: a rank-one modification
// separates it into two halves, which are merged by solving a secular equation (Cuppen 1981; Gu and
// Eisenstat, "A divide-and-conquer algorithm for the symmetric tridiagonal eigenproblem", 1995).
// The eigenvalues are stored in d in ascending order; e is destroyed. vt must be zero; its rows
// become the eigenvectors.
func divide(d, e []float64, vt Matrix) bool {
	n := len(d)
	if n <= leaf {
		z, work := make([]float64, n*n), make([]float64, max(1, 2*n-2))
		if !(lapackgonum.Implementation{}).Dsteqr(lapack.EVTridiag, n, d, e, z, n, work) {
			return false
		}
		for i := range n {
			row := vt.row(i)
			for j := range row {
				row[j] = z[j*n+i]
			}
		}
		return true
	}
	half := n / 2
	off := e[half-1]
	d[half-1] -= math.Abs(off)
	d[half] -= math.Abs(off)
	if !divide(d[:half], e[:half-1], vt.part(0, half, 0, half)) ||
		!divide(d[half:], e[half:], vt.part(half, n, half, n)) {
		return false
	}
	m := &merge{d: d, vt: vt, half: half, z: make([]float64, n), rho: 2 * math.Abs(off),
		kind: make([]kind, n)}
	for i := range n {
		if i < half {
			m.z[i] = vt.at(i, half-1) / math.Sqrt2
		} else {
			m.z[i] = math.Copysign(1, off) * vt.at(i, half) / math.Sqrt2
			m.kind[i] = lower
		}
	}
	m.deflate()
	m.solve()
	return true
}

// merge is the decomposition of diag(d) + ρ·z·zᵀ, in the basis of the rows of vt. In the first half
// of these rows only the first half of the columns can be nonzero, in the second half only the
// second.
type merge struct {
	d    []float64
	vt   Matrix
	half int
	z    []float64
	rho  float64

	kind []kind // of each row
	live []int  // rows whose eigenpairs change, in ascending order of d
	done []int  // deflated rows
}

// kind says which part of a row can be nonzero.
type kind int

const (
	upper kind = iota
	both
	lower
)

// deflate finds the eigenpairs that the rank-one modification leaves unchanged to working
// precision: those with a tiny element of z and, for two nearly equal eigenvalues, the combination
// orthogonal to z (LAPACK's dlaed2).
func (m *merge) deflate() {
	most := 0.0
	for i := range m.d {
		most = max(most, math.Abs(m.d[i]), math.Abs(m.z[i]))
	}
	tolerance := 8 * epsilon * most
	previous := -1
	for _, i := range ascending(m.d) {
		if m.rho*math.Abs(m.z[i]) <= tolerance {
			m.done = append(m.done, i)
			continue
		}
		if previous >= 0 {
			if m.rotate(previous, i, tolerance) {
				m.done = append(m.done, previous)
			} else {
				m.live = append(m.live, previous)
			}
		}
		previous = i
	}
	if previous >= 0 {
		m.live = append(m.live, previous)
	}
}

// rotate applies a rotation to rows i and j that makes z[i] zero, unless this changes the matrix by
// more than the tolerance. It reports whether it did.
func (m *merge) rotate(i, j int, tolerance float64) bool {
	length := math.Hypot(m.z[i], m.z[j])
	c, s := m.z[j]/length, -m.z[i]/length
	if math.Abs((m.d[j]-m.d[i])*c*s) > tolerance {
		return false
	}
	m.z[j], m.z[i] = length, 0
	if m.kind[i] != m.kind[j] {
		m.kind[i], m.kind[j] = both, both
	}
	x, y := m.vt.row(i), m.vt.row(j)
	for k, v := range x {
		w := y[k]
		x[k], y[k] = c*v+s*w, c*w-s*v
	}
	p, q := m.d[i], m.d[j]
	m.d[i], m.d[j] = p*c*c+q*s*s, p*s*s+q*c*c
	return true
}

// solve computes the eigenpairs that change, and sorts all eigenpairs by eigenvalue.
func (m *merge) solve() {
	n, k := len(m.d), len(m.live)
	values, coefficients := m.secular()
	defer coefficients.release()
	// Order the live rows by the half in which they are nonzero (upper, both, lower), so that each
	// half is one product.
	slots := slices.Clone(m.live)
	slices.SortStableFunc(slots, func(a, b int) int { return cmp.Compare(m.kind[a], m.kind[b]) })
	slot := make([]int, n)
	old := temporary[float64](k, n)
	defer old.release()
	firstBoth, firstLower := k, k
	for at, i := range slots {
		slot[i] = at
		copy(old.row(at), m.vt.row(i))
		if m.kind[i] != upper {
			firstBoth = min(firstBoth, at)
		}
		if m.kind[i] == lower {
			firstLower = min(firstLower, at)
		}
	}
	s := temporary[float64](k, k)
	defer s.release()
	for j := range k {
		to := s.row(j)
		for at, v := range coefficients.row(j) {
			to[slot[m.live[at]]] = v
		}
	}
	fresh := temporary[float64](n, n)
	defer fresh.release()
	MulAdd(fresh.part(0, k, 0, m.half), 1, s.part(0, k, 0, firstLower),
		old.part(0, firstLower, 0, m.half))
	MulAdd(fresh.part(0, k, m.half, n), 1, s.part(0, k, firstBoth, k),
		old.part(firstBoth, k, m.half, n))
	for _, i := range m.done {
		copy(fresh.row(len(values)), m.vt.row(i))
		values = append(values, m.d[i])
	}
	for to, from := range ascending(values) {
		m.d[to] = values[from]
		copy(m.vt.row(to), fresh.row(from))
	}
}

func ascending(values []float64) []int {
	order := lists.Range(len(values))
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(values[a], values[b]) })
	return order
}

// secular computes the eigenvalues that change and their eigenvectors in the basis of the live
// rows, as the rows of a temporary matrix. For the eigenvectors, z is recomputed so that the
// computed eigenvalues are exact for it. Thus the eigenvectors are orthogonal, however close the
// eigenvalues.
func (m *merge) secular() (values []float64, vectors Matrix) {
	k := len(m.live)
	d, z := make([]float64, k), make([]float64, k)
	square := 0.0
	for at, i := range m.live {
		d[at], z[at] = m.d[i], m.z[i]
		square += z[at] * z[at]
	}
	values = make([]float64, k, len(m.d))
	gaps := temporary[float64](k, k) // d[i] − λ_j in row j
	weights := slices.Repeat([]float64{-1}, k)
	for j := range k {
		origin, mu := secularRoot(j, d, z, m.rho, square)
		values[j] = d[origin] + mu
		own := weights[j] * (d[j] - d[origin] - mu) // its denominator is zero
		row := gaps.row(j)
		for i, pole := range d {
			row[i] = pole - d[origin] - mu
			weights[i] *= row[i] / (pole - d[j])
		}
		weights[j] = own
	}
	for i, w := range weights {
		weights[i] = math.Copysign(math.Sqrt(max(w, 0)), z[i])
	}
	for j := range k {
		row := gaps.row(j)
		for i, w := range weights {
			row[i] = w / row[i]
		}
		scale := 1 / math.Sqrt(active.double.dot(row, row))
		for i := range row {
			row[i] *= scale
		}
	}
	return values, gaps
}

const epsilon = 0x1p-53 // half an ulp of 1

// secularRoot finds the root j of 1 + ρ·Σ z²/(d−λ), with ρ > 0 and ascending poles d. The root is
// between d[j] and d[j+1], or for the last one d[j] + ρ·Σz². It is d[origin] + μ, where d[origin]
// is the nearer pole; μ is accurate even if the root and this pole agree in most digits. The
// iteration replaces the sums over the poles to the left and to the right by one pole each (the
// "middle way" of Li, "Solving secular equations stably and efficiently", 1993), and bisects the
// interval if a step would leave it.
func secularRoot(j int, d, z []float64, rho, square float64) (origin int, mu float64) {
	last := j == len(d)-1
	right := rho * square // the end of the interval, from d[j]
	if !last {
		right = d[j+1] - d[j]
	}
	origin = j
	lo, hi := 0.0, right
	mu = right / 2
	if !last {
		if sum, _ := active.secular(d, z, d[j], mu); 1+rho*sum < 0 {
			origin, lo, hi, mu = j+1, -right/2, 0, -right/2
		} else {
			hi = mu
		}
	}
	for range 100 {
		left, leftSlope := active.secular(d[:j+1], z, d[origin], mu)
		rest, restSlope := active.secular(d[j+1:], z[j+1:], d[origin], mu)
		left, rest = rho*left, rho*rest
		f := 1 + left + rest
		if f < 0 {
			lo = mu
		} else {
			hi = mu
		}
		if math.Abs(f) <= 4*epsilon*(1+rest-left) || hi-lo <= epsilon*min(math.Abs(lo), math.Abs(hi)) {
			break
		}
		next := mu + middleWay(j, d, d[origin], mu, f, rho*leftSlope, rho*restSlope)
		if !(next > lo && next < hi) {
			next = between(lo, hi)
		}
		if next == mu {
			break
		}
		mu = next
	}
	return origin, mu
}

// middleWay returns the step from λ = d[origin] + mu to the root of an interpolation with poles at
// d[j] and d[j+1], or for the last root only at d[j].
func middleWay(j int, d []float64, origin, mu, f, leftSlope, rightSlope float64) float64 {
	p := d[j] - origin - mu
	if j == len(d)-1 {
		return p + leftSlope*p*p/(f-p*leftSlope)
	}
	q := d[j+1] - origin - mu
	c := f - p*leftSlope - q*rightSlope
	a := (p+q)*f - p*q*(leftSlope+rightSlope)
	b := p * q * f
	root := math.Sqrt(max(a*a-4*b*c, 0))
	if a <= 0 {
		return (a - root) / (2 * c)
	}
	return 2 * b / (a + root)
}

// between returns a point that bisects an interval, on a logarithmic scale if the interval spans
// many orders of magnitude.
func between(lo, hi float64) float64 {
	small, large := math.Abs(lo), math.Abs(hi)
	if small > large {
		small, large = large, small
	}
	if lo*hi < 0 || large < 4*small {
		return lo + (hi-lo)/2
	}
	mid := large / 1024
	if small > 0 {
		mid = math.Sqrt(small) * math.Sqrt(large)
	}
	if hi <= 0 {
		return -mid
	}
	return mid
}
