package flight

import (
	"fmt"
	"sync"
	"testing"

	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/room"
)

func TestARequestEndsOnceHoweverManyTry(t *testing.T) {
	ends := 0
	r := New("decode", 0, func(*Record) { ends++ })
	c := r.Open("r1", 7, 10)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			c.Finalize(room.Because(room.Bug, "%d", i))
		}()
	}
	wg.Wait()
	if ends != 1 || r.Live() != 0 {
		t.Fatalf("%d endings, %d live; want one ending", ends, r.Live())
	}
	first := c.Cause()
	if c.Finalize(nil) || c.Cause() != first {
		t.Fatal("a later cause replaced the first")
	}
}

func TestEndedRecordsAreBoundedAndTheNewestStay(t *testing.T) {
	r := New("decode", 3, nil)
	for i := range 5 {
		r.Open(id.RID(fmt.Sprint(i)), id.Room(i+1), 1).Finalize(nil)
	}
	got := r.List(10)
	if len(got) != 3 || got[0].RID != "4" || got[2].RID != "2" {
		t.Fatalf("kept %+v, want the last three, newest first", got)
	}
}

func TestARecordIsFoundByItsRequestAndByItsRoom(t *testing.T) {
	r := New("decode", 0, nil)
	r.Open("r1", 77, 1).Note("Prealloc", "leg", "")
	for _, key := range []string{"r1", "77"} {
		if v := r.Find(key); len(v) != 1 || len(v[0].Steps) != 1 {
			t.Errorf("Find(%q) = %+v", key, v)
		}
	}
	if v := r.Find("0"); len(v) != 0 {
		t.Errorf("room 0 was found: %+v", v)
	}
}
