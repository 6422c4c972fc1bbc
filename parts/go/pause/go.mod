module podpool/parts/pause

go 1.26.0
