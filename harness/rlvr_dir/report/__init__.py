"""Make tables, figures and pages from results and analyses: HTML, Markdown, LaTeX and CSV from one model of a table.

    from rlvr_dir.report.build import build
    from rlvr_dir.report.write import write
    write(build(results), Path("report"))

Each kind of page has its own module (`html` is the report's) and a template in `templates/`.
"""
