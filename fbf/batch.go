package fbf

// group is how many ids are requested ahead of their check: enough to keep
// the memory system busy, few enough to stay in the first-level cache.
const group = 32

// Touch requests the lines of h ahead of a check, so that the cache misses of
// a batch overlap: Touch a few ids, then check each of them. Of segments that only
// answer checks it requests two lines, which are almost always enough to see that an id
// is new.
func (f *Filter) Touch(h uint64) { touch(f.segs, h) }

// CheckAndInsertBatch is CheckAndInsert for every h of hs, in order, with the
// lines requested ahead. present[i] is the result for hs[i], and len(present) must be
// at least len(hs). A batch may hold at most Room ids, or the target is exceeded.
func (f *Filter) CheckAndInsertBatch(hs []uint64, now int64, present []bool) {
	present = present[:len(hs)]
	if len(f.segs) == 1 && f.segs[0].r == 1 {
		f.batchOne(hs, now, present)
		return
	}
	for len(hs) > 0 {
		n := min(group, len(hs))
		for _, h := range hs[:n] {
			f.Touch(h)
		}
		for i, h := range hs[:n] {
			present[i] = f.CheckAndInsert(h, now)
		}
		hs, present = hs[n:], present[n:]
	}
}

// batchOne is CheckAndInsertBatch for the usual filter of one segment: every id is located once only.
func (f *Filter) batchOne(hs []uint64, now int64, present []bool) {
	var ps [group]probes
	s := f.segs[0]
	for len(hs) > 0 {
		n := min(group, len(hs))
		for i, h := range hs[:n] {
			s.request(h, &ps[i])
		}
		for i := range hs[:n] {
			present[i] = s.located(&ps[i]) != 0
			if !present[i] {
				f.insert(s, &ps[i], now)
			}
		}
		hs, present = hs[n:], present[n:]
	}
}

// Room is how many ids may be inserted before Plan must be asked again.
func (f *Filter) Room() uint64 { return f.room }
