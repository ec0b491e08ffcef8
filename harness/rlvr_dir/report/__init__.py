"""Tables, figures and pages made of results and analyses: HTML, Markdown, LaTeX and CSV from one model of a table.

    from rlvr_dir.report.build import build
    from rlvr_dir.report.write import write
    write(build(results), Path("report"))

Each kind of page has a module of its own (`html` is the report's) and a template beside it in `templates/`.
"""
