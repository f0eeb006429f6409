package golden

import "github.com/cage-qat/cage/internal/goldenfile"

// Tolerance says how far a value may be from the expected one.
type Tolerance = goldenfile.Tolerance

// Close compares got with the golden numbers at key, with the file's own
// tolerance, and reports the worst element as a test error. It returns whether
// all elements passed.
func (o Object) Close(key string, got []float64) bool {
	o.t.Helper()
	return o.CloseWithin(o.tolerance, key, got)
}

// CloseValue is Close for a single number.
func (o Object) CloseValue(key string, got float64) bool {
	o.t.Helper()
	return o.Close(key, []float64{got})
}

// Exact is Close with equality: for codes, masks and other integers.
func (o Object) Exact(key string, got []float64) bool {
	o.t.Helper()
	return o.CloseWithin(Tolerance{}, key, got)
}

// CloseWithin is Close with another tolerance than the file's, for results that
// were computed in a narrower type. The caller states and justifies it.
func (o Object) CloseWithin(tol Tolerance, key string, got []float64) bool {
	o.t.Helper()
	if err := tol.Compare(got, o.Tensor(key)); err != nil {
		o.t.Errorf("%s.%s: %v", o.path, key, err)
		return false
	}
	return true
}
