module gotemplate

go 1.23
