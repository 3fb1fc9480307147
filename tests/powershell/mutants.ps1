# Lists the changes that mutants.py may make in the files given: one line of JSON each, {file, start, length, text, kind}.
# mutants.py tells what is left out, and why.
$ErrorActionPreference = 'Stop'
$turned = @{
    Ieq = '-ne'; Ine = '-eq'; Ceq = '-cne'; Cne = '-ceq'; Ilt = '-ge'; Ile = '-gt'; Igt = '-le'; Ige = '-lt'; And = '-or'; Or = '-and'
    Imatch = '-notmatch'; Inotmatch = '-match'; Ilike = '-notlike'; Inotlike = '-like'; Icontains = '-notcontains'
    Inotcontains = '-contains'; Iin = '-notin'; Inotin = '-in'; Is = '-isnot'; IsNot = '-is'
}
$messages = 'Write-Progressing', 'Write-Warning'

function Get-Up($Ast, [scriptblock]$Test) {
    for ($up = $Ast.Parent; $up; $up = $up.Parent) { if (& $Test $up) { return $up } }
}
function Test-Command($Ast, [string[]]$Names) {
    return $Ast -is [System.Management.Automation.Language.CommandAst] -and $Names -contains $Ast.GetCommandName()
}
# Is it a message's text?
function Test-Message($Ast) {
    return [bool](Get-Up $Ast { param($up) $up -is [System.Management.Automation.Language.ThrowStatementAst] -or (Test-Command $up $messages) })
}
# Is it how long something is waited for?
function Test-Wait($Ast) {
    $sleeps = { param($one) Test-Command $one 'Start-Sleep' }
    return [bool](Get-Up $Ast {
        param($up)
        (Test-Command $up 'Start-Sleep') -or
            ($up -is [System.Management.Automation.Language.InvokeMemberExpressionAst] -and "$($up.Member)" -in 'WaitOne', 'FromSeconds') -or
            ($up.Parent -is [System.Management.Automation.Language.ForStatementAst] -and $up -eq $up.Parent.Condition -and $up.Parent.Body.Find($sleeps, $true))
    })
}

function Write-Change([string]$File, [int]$Offset, $Extent, [string]$Text, [string]$Kind) {
    $row = [ordered]@{ file = $File; start = $Offset + $Extent.StartOffset; length = $Extent.EndOffset - $Extent.StartOffset; text = $Text; kind = $Kind }
    [Console]::Out.WriteLine((ConvertTo-Json -InputObject $row -Compress))
}

function Write-Changes([string]$File, [string]$Source, [int]$Offset) {
    $errors = $null
    $tree = [System.Management.Automation.Language.Parser]::ParseInput($Source, [ref]$null, [ref]$errors)
    if ($errors) { throw "$File is no PowerShell: $errors" }
    foreach ($one in $tree.FindAll({ $true }, $true)) {
        $in = $one.Parent
        if ($one -is [System.Management.Automation.Language.StatementAst] -and
            ($in -is [System.Management.Automation.Language.StatementBlockAst] -or $in -is [System.Management.Automation.Language.NamedBlockAst]) -and
            $one -isnot [System.Management.Automation.Language.FunctionDefinitionAst]) {
            $first = $one.Find({ param($part) $part -is [System.Management.Automation.Language.CommandAst] }, $false)
            $only = $one -is [System.Management.Automation.Language.PipelineAst] -and $first -and (Test-Command $first ($messages + 'Start-Sleep'))
            if (-not $only -and "$one" -notlike '$ProgressPreference = *') {
                Write-Change $File $Offset $one.Extent '' $(if ($one -is [System.Management.Automation.Language.ThrowStatementAst]) { 'throw' } else { 'statement' })
            }
        }
        if ($one -is [System.Management.Automation.Language.BinaryExpressionAst] -and $turned.ContainsKey("$($one.Operator)")) {
            Write-Change $File $Offset $one.ErrorPosition $turned["$($one.Operator)"] 'comparison'
        }
        if ($one -is [System.Management.Automation.Language.UnaryExpressionAst] -and "$($one.TokenKind)" -in 'Not', 'Exclaim') {
            Write-Change $File $Offset $one.Extent $one.Child.Extent.Text 'comparison'
        }
        if ($one -is [System.Management.Automation.Language.CommandParameterAst] -and $one.ParameterName -eq 'ErrorAction') {
            $next = $in.CommandElements[$in.CommandElements.IndexOf($one) + 1]
            Write-Change $File $Offset @{ StartOffset = $one.Extent.StartOffset; EndOffset = $next.Extent.EndOffset } '' 'error action'
        }
        if ($one -is [System.Management.Automation.Language.VariableExpressionAst] -and $one.VariablePath.UserPath -in 'true', 'false' -and
            $in -isnot [System.Management.Automation.Language.NamedAttributeArgumentAst]) {
            Write-Change $File $Offset $one.Extent $(if ($one.VariablePath.UserPath -eq 'true') { '$false' } else { '$true' }) 'boolean'
        }
        if ($one -is [System.Management.Automation.Language.StringConstantExpressionAst] -or $one -is [System.Management.Automation.Language.ExpandableStringExpressionAst]) {
            if ("$($one.StringConstantType)" -like '*HereString') {
                # PowerShell for a task, which is mutated itself
                if ("$in" -like '$TaskScript*') { Write-Changes $File $one.Value ($Offset + $one.Extent.StartOffset + "@'`n".Length) }
            } elseif ("$($one.StringConstantType)" -ne 'BareWord' -and $one.Value -and -not (Test-Message $one)) {
                Write-Change $File $Offset $one.Extent "''" 'string'
            }
        } elseif ($one -is [System.Management.Automation.Language.ConstantExpressionAst]) {
            if ($one.Value -is [ValueType] -and -not (Test-Wait $one) -and -not (Test-Message $one)) { Write-Change $File $Offset $one.Extent "$(if ([Math]::Abs($one.Value) -lt 100) { [long]$one.Value + 1 } else { 2 * [long]$one.Value })" 'number' }
        }
    }
}

foreach ($file in $args) { Write-Changes $file ([System.IO.File]::ReadAllText($file)) 0 }
