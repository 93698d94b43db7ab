package stats

import "testing"

func TestBootstrapHoldsTheMedian(t *testing.T) {
	x := []float64{0.9, 1, 1.1, 1.05, 0.95, 1.02, 0.98, 1, 1.01, 0.99}
	i := Bootstrap(x)
	if i.Median != 1 || i.Low > i.Median || i.High < i.Median || i.Low < 0.9 || i.High > 1.1 {
		t.Errorf("%+v", i)
	}
	if i = Bootstrap([]float64{2, 2, 2}); i != (Interval{2, 2, 2}) {
		t.Errorf("equal pairs: %+v", i)
	}
	if i = Bootstrap(nil); i != (Interval{}) {
		t.Errorf("no pairs: %+v", i)
	}
}

func TestQuantiles(t *testing.T) {
	var x []float64
	for i := range 100 {
		x = append(x, float64(99-i))
	}
	if Median(x) != 49.5 || Quantile(x, 0.99) != 99 || Quantile(x, 0.5) != 50 || Quantile(x, 1) != 99 {
		t.Error(Median(x), Quantile(x, 0.99), Quantile(x, 0.5), Quantile(x, 1))
	}
	if Median(nil) != 0 || Quantile(nil, 0.5) != 0 {
		t.Error("nothing has no median")
	}
}
