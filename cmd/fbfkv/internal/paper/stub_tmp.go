package paper

func figure14(r *run) (result, error) { return result{}, nil }
func figure15(r *run) (result, error) { return result{}, nil }
