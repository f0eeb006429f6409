package linalg

import "sync"

// fourRows is the tile height in portable vector code. With two vectors per row, the compiler still
// keeps all sums in registers. More rows are slower.
const fourRows = 4

// maxTileRows and maxTileCols are the largest tile height and width.
const (
	maxTileRows = 8
	maxTileCols = 32
)

// kernels holds the inner loops for one kind of processor. All slices are at least as long as the
// first. A kernel with wide vectors clears the upper halves of their registers before it computes
// the remainder. The compiler does not do this, and while upper halves are in use, code that mixes
// SSE and AVX instructions, such as SHA-256 and [math.Exp], takes a hundred times as long.
type kernels struct {
	name   string
	double vectors[float64]
	single vectors[float32]
	// four returns the inner products of four rows with x, and adds alpha times these rows to y.
	// Thus a symmetric matrix is multiplied by a vector while it is read once.
	four func(a0, a1, a2, a3, x, y []float64, alpha *[4]float64) [4]float64
	// few implements FewTimes, and fewBFloat16 implements FewTimesBFloat16.
	few         func(y, x, w MatrixOf[float32])
	fewBFloat16 func(y, x MatrixOf[float32], w BFloat16) // nil without instructions for bfloat16
	// secular returns the sums of z²/(d−μ) and z²/(d−μ)², where d = poles−origin.
	secular func(poles, z []float64, origin, mu float64) (value, slope float64)
}

// vectors holds the inner loops that exist for both element types.
type vectors[T Float] struct {
	tileRows, tileCols int
	// tile adds a product to the tile of C at c, whose row stride is stride. The factors are a
	// strip of A, with tileRows elements for each of its k columns, and a strip of B, with tileCols
	// elements for each of its k rows.
	tile func(k int, a, b, c []T, stride int)
	dot  func(x, y []T) T
	// axpy adds alpha·x to y.
	axpy func(alpha T, x, y []T)
}

var active = supported()[0]

func kernelsOf[T Float]() *vectors[T] {
	if v, ok := any(&active.double).(*vectors[T]); ok {
		return v
	}
	return any(&active.single).(*vectors[T])
}

// pools holds reusable memory for an element type, because allocation costs more than many
// operations on that memory.
type pools[T Float] struct {
	matrices sync.Pool // of *[]T, for temporary matrices
	packs    sync.Pool // of *packed[T]
}

var (
	poolsDouble pools[float64]
	poolsSingle pools[float32]
)

func poolsOf[T Float]() *pools[T] {
	if t, ok := any(&poolsDouble).(*pools[T]); ok {
		return t
	}
	return any(&poolsSingle).(*pools[T])
}

var portable = kernels{
	name:    "portable",
	double:  vectorsPortable[float64](),
	single:  vectorsPortable[float32](),
	four:    fourPortable,
	few:     func(y, x, w MatrixOf[float32]) { fewByRows(y, x, w, dotPortable[float32]) },
	secular: secularPortable,
}

func vectorsPortable[T Float]() vectors[T] {
	return vectors[T]{fourRows, 4, tilePortable[T], dotPortable[T], axpyPortable[T]}
}

func tilePortable[T Float](k int, a, b, c []T, stride int) {
	const cols = 4
	a, b = a[:k*fourRows], b[:k*cols]
	for i := range fourRows {
		var c0, c1, c2, c3 T
		at := i
		for p := 0; p+cols <= len(b); p += cols {
			v, w := a[at], (*[cols]T)(b[p:])
			c0, c1, c2, c3 = c0+v*w[0], c1+v*w[1], c2+v*w[2], c3+v*w[3]
			at += fourRows
		}
		row := (*[cols]T)(c[i*stride:])
		row[0], row[1], row[2], row[3] = row[0]+c0, row[1]+c1, row[2]+c2, row[3]+c3
	}
}

func dotPortable[T Float](x, y []T) T {
	y = y[:len(x)]
	var s0, s1, s2, s3 T
	i := 0
	for ; i+4 <= len(x); i += 4 {
		a, b := (*[4]T)(x[i:]), (*[4]T)(y[i:])
		s0, s1, s2, s3 = s0+a[0]*b[0], s1+a[1]*b[1], s2+a[2]*b[2], s3+a[3]*b[3]
	}
	return dotRest(s0, x[i:], y[i:]) + s1 + (s2 + s3)
}

// dotRest returns sum plus the products of the elements that do not fill a vector.
func dotRest[T Float](sum T, x, y []T) T {
	for i, v := range x {
		sum += v * y[i]
	}
	return sum
}

func axpyPortable[T Float](alpha T, x, y []T) {
	y = y[:len(x)]
	for i, v := range x {
		y[i] += alpha * v
	}
}

func fourPortable(a0, a1, a2, a3, x, y []float64, alpha *[4]float64) (sum [4]float64) {
	n := len(a0)
	a1, a2, a3, x, y = a1[:n], a2[:n], a3[:n], x[:n], y[:n]
	for i := range a0 {
		sum[0] += a0[i] * x[i]
		sum[1] += a1[i] * x[i]
		sum[2] += a2[i] * x[i]
		sum[3] += a3[i] * x[i]
		y[i] += alpha[0]*a0[i] + alpha[1]*a1[i] + alpha[2]*a2[i] + alpha[3]*a3[i]
	}
	return sum
}

func secularPortable(poles, z []float64, origin, mu float64) (value, slope float64) {
	z = z[:len(poles)]
	for i, d := range poles {
		t := z[i] / (d - origin - mu)
		value += z[i] * t
		slope += t * t
	}
	return value, slope
}
